"""Answer two prompts at once and check that each answer is what it would be alone."""

from medusakit import LLM, SamplingParams

PROMPTS = ("Name three primary colours.", "What is the capital of France?")

llm = LLM.load("smollm2", max_rows=2)
params = SamplingParams(max_tokens=24)
alone = [llm.generate(prompt, params).text for prompt in PROMPTS]
streams = [llm.stream(prompt, params) for prompt in PROMPTS]
together = ["".join(event.text for event in stream) for stream in streams]
for prompt, text in zip(PROMPTS, together, strict=True):
    print(f"> {prompt}\n{text}")
print("same as alone:", together == alone)
llm.close()
