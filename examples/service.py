"""A service that runs a transformers model, and the two lines that let it decode by trees.

    python examples/service.py [MODEL_FOLDER [HEADS_FOLDER]]

Without a folder: SmolLM2-135M-Instruct (medusa models pull smollm2) and its packaged heads.
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


def opened(folder: str | None, heads: str | None) -> tuple[Any, Any, str | None]:
    """Model, tokenizer, heads."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if folder is not None:
        return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder), heads
    from medusakit.artifact.find import packaged_heads
    from medusakit.models.resolve import resolve
    from medusakit.text.tokenizer import load_tokenizer

    found = resolve("smollm2")
    model = AutoModelForCausalLM.from_pretrained(found.path.parent, gguf_file=found.path.name)
    return model.eval(), load_tokenizer(found), str(packaged_heads() / "hydra")


def main(folder: str | None = None, heads: str | None = None) -> None:
    model, tokenizer, heads = opened(folder, heads)
    service = Service(model)
    handle = convert(service, heads)
    ids = list(tokenizer.encode("A B-tree is"))
    answer = service.answer({"ids": ids, "max_new_tokens": 64, "do_sample": False})
    print(tokenizer.decode(answer))
    print(f"{handle.num_tokens} tokens in {handle.num_steps} steps")


if __name__ == "__main__":
    main(*sys.argv[1:])
