"""Stream one answer and print what speculation did."""

from medusakit import LLM, SamplingParams

llm = LLM.load("smollm2")
stream = llm.stream("Explain a B-tree in two sentences", SamplingParams(max_tokens=64))
for event in stream:
    print(event.text, end="", flush=True)

stats = stream.result.stats
print(f"\n{stats.num_tokens} tokens, tau {stats.tau:.2f}")
llm.close()
