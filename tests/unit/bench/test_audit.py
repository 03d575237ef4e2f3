"""The node audit passes an honest runtime and fails one with a planted leak of the tree mask."""

from __future__ import annotations

import numpy as np
import pytest

from engine_fakes import VOCAB, LetterTokenizer, Prophet
from medusakit.bench.audit import KL_LIMIT, audit_nodes, kl_divergence
from medusakit.engine.controller import FixedController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.runtimes.reference import random_reference
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology

TOPOLOGY = Topology.from_parents([-1, 0, 0, 1, 1, 2, 3, 6])


def engine(leak: tuple[int, int] | None = None) -> Engine:
    runtime = random_reference(3, VOCAB, leak=leak, max_rows=2)
    plan = make_plan(Prophet(0.5), StaticPolicy(TOPOLOGY), TOPOLOGY.num_nodes)
    return Engine(runtime, LetterTokenizer(), FixedController(plan))


def test_an_honest_runtime_passes() -> None:
    audited = engine()
    audit = audit_nodes(audited, [[1, 2, 3], [4, 5]], num_nodes=100, max_tokens=40)
    assert audit.nodes >= 100
    assert audit.deep_nodes > 0 and audit.later_siblings > 0
    assert audit.kl_max <= KL_LIMIT and audit.argmax_flips == 0
    assert audited.runtime.rows == ()


@pytest.mark.parametrize("leak", [(2, 1), (4, 3), (5, 1)])
def test_a_leak_of_one_sibling_fails(leak: tuple[int, int]) -> None:
    audit = audit_nodes(engine(leak), [[1, 2, 3]], num_nodes=40)
    assert audit.kl_max > KL_LIMIT


def test_kl_of_known_distributions() -> None:
    left, right = np.log(np.array([0.5, 0.5], np.float32)), np.log(np.array([0.25, 0.75], np.float32))
    assert kl_divergence(left, right) == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3), rel=1e-5)
    assert kl_divergence(left, left + 7) == pytest.approx(0.0, abs=1e-12)
