"""A service that runs a transformers model, and the two lines that let it decode by trees.

    python examples/service.py MODEL_FOLDER [HEADS_FOLDER]

Needs: pip install 'medusakit[torch]'
"""

from __future__ import annotations

import sys
from typing import Any


class Service:
    """As it was written before anybody thought of drafting."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def answer(self, request: dict[str, Any]) -> list[int]:
        """Ids of the answer to {"ids": [...], and any argument of `generate`}."""
        import torch

        settings = dict(request)
        ids = torch.tensor([settings.pop("ids")])
        output = self.model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        return output[0, ids.shape[1] :].tolist()


def convert(service: Service, heads: str | None) -> Any:
    """The two lines. `handle.unhook()` takes them back."""
    from medusakit.integrations.transformers import medusa_hook

    return medusa_hook(service.model, heads, enable_tree_cache=True)


def main(folder: str, heads: str | None = None) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    service = Service(AutoModelForCausalLM.from_pretrained(folder).eval())
    handle = convert(service, heads)
    ids = tokenizer("A B-tree is", return_tensors="pt").input_ids[0].tolist()
    print(tokenizer.decode(service.answer({"ids": ids, "max_new_tokens": 64, "do_sample": False})))
    print(f"{handle.num_tokens} tokens in {handle.num_steps} steps")


if __name__ == "__main__":
    main(*sys.argv[1:])
