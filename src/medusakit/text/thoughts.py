"""What models think before they answer stands between marks, which their chat templates know."""

from __future__ import annotations

from dataclasses import dataclass

MARKS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))


@dataclass(frozen=True, slots=True)
class Thought:
    """opens: empty where the prompt has opened the thought, so that the answer begins inside of it."""

    opens: str
    closes: str


def thought_of(template: str, prompt: str) -> Thought | None:
    """What an answer may begin with. None: the model does not think, or its prompt ends with a thought that is over.

    prompt  the end of it, control tokens as they are spelled
    """
    said = prompt.rstrip()
    for opens, closes in MARKS:
        if opens in template and closes in template:
            return None if said.endswith(closes) else Thought("" if said.endswith(opens) else opens, closes)
    return None
