"""A whole `LLM` on a small runtime, for tests of the bench: chat of letters, a drafter that reads the model's mind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine_fakes import LetterTokenizer, Prophet, answer
from medusakit.artifact.io import save_artifact
from medusakit.artifact.schema import Backbone, CalibratedTree, Provenance, TreeNode
from medusakit.drafters.base import Drafter, DraftState
from medusakit.drafters.registry import load_drafter
from medusakit.engine.controller import Controller, FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.loading import Loaded
from medusakit.engine.plan import make_plan
from medusakit.engine.speculation import Speculation
from medusakit.llm import LLM
from medusakit.models.resolve import ResolvedModel
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.reference import random_reference
from medusakit.runtimes.reference_source import random_source
from medusakit.settings import SamplingParams
from medusakit.text.control import ControlSplitter
from medusakit.tree.cost import StepCost
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology

TREE = Topology.from_rank_paths([(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (1, 0)])


@dataclass(frozen=True)
class ChatTokenizer(LetterTokenizer):
    """The letters of all messages in a row are the prompt, so that a test reads off it what was asked."""

    chat_template: str | None = "{% for message in messages %}{{ message.content }}{% endfor %}"
    names: dict[str, str] = field(default_factory=dict)
    control: Any = ControlSplitter(())

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        """Letters as they are; any other character is some letter too."""
        return [(ord(letter) - 97) % self.vocab_size for letter in text]


@dataclass
class MindReader(Prophet):
    """Knows what a twin of the model says next, greedily."""

    model_seed: int = 0

    def truth(self, state: DraftState) -> Sequence[int]:
        twin = Engine(random_reference(self.model_seed, self.vocab_size), LetterTokenizer(), PlainController())
        return [*state.ids, *answer(twin, state.ids, SamplingParams(max_tokens=4)).token_ids]


def make_llm(
    runtime: Runtime, drafter: Drafter | None = None, topology: Topology = TREE, *, tokenizer: Any = None
) -> LLM:
    """The Python face over given parts; without a drafter it decodes plainly."""
    controller: Controller = PlainController()
    if drafter is not None:
        controller = FixedController(make_plan(drafter, StaticPolicy(topology), topology.num_nodes))
    return LLM(
        Loaded(
            resolved=ResolvedModel("toy", Path("toy.gguf"), "gguf"),
            source=random_source(0, runtime.spec.vocab_size),
            runtime=runtime,
            tokenizer=tokenizer or ChatTokenizer(),
            artifact=None,
            speculation=Speculation(drafter, topology, controller),
            cost=None,
        )
    )


def toy_llm(seed: int = 0, *, right: float = 0.7, leak: tuple[int, int] | None = None, max_context: int = 128) -> LLM:
    """A random model of 23 letters with room for two rows, and heads that are right with probability `right`."""
    runtime = random_reference(seed, LetterTokenizer.vocab_size, leak=leak, max_rows=2, context_length=max_context)
    return make_llm(runtime, MindReader(right, model_seed=seed))


def headed_llm(folder: Path, *, context: int = 256, shares: Sequence[float] = (0.5, 0.3, 0.2, 0.1)) -> LLM:
    """A toy model of 50 letters with (random) hydra heads saved in `folder`; a pass costs the same for any nodes."""
    import drafter_toys as toys

    paths = [(0,), (0, 0), (1,), (0, 0, 0)][: len(shares)]
    nodes = tuple(TreeNode(path=path, acceptance=share) for path, share in zip(paths, shares, strict=True))
    artifact = save_artifact(
        folder,
        backbone=Backbone(
            name="toy", fingerprint=toys.SOURCE.fingerprint, hidden_size=toys.SIZE, vocab_size=toys.VOCAB
        ),
        drafter=toys.HYDRA,
        tree=CalibratedTree(nodes=nodes, num_positions=100),
        tensors=toys.tensors_of(toys.random_net(toys.HYDRA)),
        provenance=Provenance(created="today", medusakit="0"),
    )
    drafter = load_drafter(artifact, toys.SOURCE, threads=1)
    runtime = random_reference(5, toys.VOCAB, max_rows=2, context_length=context)
    llm = make_llm(runtime, drafter, artifact.topology(5), tokenizer=ChatTokenizer(vocab_size=toys.VOCAB))
    cost = StepCost.single({1: 0.01, 64: 0.01})
    return LLM(replace(llm.parts, source=toys.SOURCE, artifact=artifact, cost=cost))
