"""A server for the web page's tests: a model that recites a text word by word, drafted with some skill."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fakes import Script, ScriptedRuntime, SkilledDrafter
from medusakit.engine.controller import FixedController
from medusakit.engine.engine import Engine
from medusakit.engine.jobs import SchedulerSettings
from medusakit.engine.plan import make_plan
from medusakit.engine.scheduler import Scheduler
from medusakit.runtimes.reference import ArrayScores
from medusakit.server.keys import Keyring
from medusakit.server.service import Options, Service, Serving
from medusakit.tree.cost import StepCost
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology, Tree
from scheduler_fakes import FakeLLM
from server_fakes import ChatBytes, card_of

TEXT = """A B-tree is a balanced search tree whose nodes hold many sorted keys at once, so that a lookup touches only \
a few pages of a disk. Every node stays between half full and full: when one overflows it is split in two, and its \
middle key moves up to the parent.

1. Searching walks from the root to a leaf and does a binary search in every node.
2. Inserting finds the leaf, puts the key there, and splits full nodes on the way back.
3. Deleting borrows keys from a neighbour, or merges two nodes that became too empty.

That is why databases and file systems love it. """
WORDS = re.findall(r"\s*[\w-]+|[^\w\s]|\s+", TEXT)
VOCABULARY = sorted(set(WORDS))


class Words(ChatBytes):
    """Tokens are the words of TEXT; every word of a prompt is the token 0."""

    vocab_size = len(VOCABULARY)
    eos_ids = special_ids = frozenset()

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        return [0 for _ in text.split()]

    def token_bytes(self, token_id: int) -> bytes:
        return VOCABULARY[token_id].encode()


@dataclass
class Reciting(ScriptedRuntime):
    """A pass takes pass_s, and a little more for every node."""

    pass_s: float = 0.02

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> list[ArrayScores]:
        time.sleep(self.pass_s * (1 + 0.02 * sum(tree.num_nodes for _, tree in trees)))
        return super().forward(trees)


@contextmanager
def page_service(pass_s: float, keys: tuple[str, ...] = ()) -> Iterator[Service]:
    script = Script(tuple(VOCABULARY.index(word) for word in WORDS), len(VOCABULARY))
    runtime = Reciting(script, max_rows=64, pass_s=pass_s)
    tree = Topology.dense([3, 2, 2, 1])
    plan = make_plan(SkilledDrafter(script, probability=0.62, seed=1), StaticPolicy(tree), tree.num_nodes)
    engine = Engine(runtime, Words(), FixedController(plan))
    service = Service(Options(), Keyring(keys))
    scheduler = Scheduler(FakeLLM(engine), SchedulerSettings(max_rows=4), on_step=service.metrics.on_step)
    scheduler.start()
    cost = StepCost.single({1: pass_s, 64: pass_s})
    service.opened(Serving(scheduler, engine.tokenizer, card_of(runtime), cost=cost))
    try:
        yield service
    finally:
        scheduler.close()
