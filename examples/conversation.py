"""Two turns of one conversation: the second computes only what is new."""

from medusakit import LLM, SamplingParams

llm = LLM.load("smollm2")
chat = llm.chat("You answer in one short sentence.", SamplingParams(max_tokens=32))
for question in ("What is a heap?", "And what is it used for?"):
    turn = chat.send(question)
    print(f"> {question}")
    print("".join(event.text for event in turn))
    stats = turn.result.stats
    print(f"  {stats.num_prompt_tokens} prompt tokens, {stats.num_reused_tokens} of them reused")
chat.close()
llm.close()
