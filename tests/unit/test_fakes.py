"""The test doubles do what their scripts say, or tests built on them would prove nothing."""

import numpy as np
import pytest

from fakes import EOS, ByteTokenizer, FakeClock, Script, ScriptedDrafter, ScriptedRuntime, SkilledDrafter
from medusakit.drafters.base import Drafter, DraftState
from medusakit.runtimes.base import Runtime
from medusakit.settings import SamplingParams
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Beam, Topology
from medusakit.verify.rules import make_rule
from medusakit.verify.walk import walk

SCRIPT = Script.of("the quick brown fox jumps over the lazy dog. ")
SHAPE = Topology.from_rank_paths([(0,), (1,), (0, 0), (0, 1), (0, 0, 0)])


def decode(runtime, drafter, num_steps, prompt=(1, 2, 3)):
    """Accepted depth per step, and the ids, through the real walk and a static policy."""
    policy, rule = StaticPolicy(SHAPE), make_rule(SamplingParams(), seed=0, vocab_size=SCRIPT.vocab_size)
    row, ids = runtime.add_row(), list(prompt)
    ids.append(runtime.prefill(row, ids).argmax(0))
    depths = []
    for _ in range(num_steps):
        state = DraftState(row, ids[-1], np.zeros(1, dtype=np.float32), ids)
        (tree,) = policy.select(drafter.propose([state], policy.shape), [SHAPE.num_nodes], len(ids))
        path = walk(tree, runtime.forward([(row, tree)])[0], rule, ids)
        runtime.commit(row, path.nodes)
        ids.extend(path.token_ids)
        depths.append(path.num_accepted)
        assert runtime.kv(row) == tuple(ids[:-1])
    return depths, ids


def test_scripted_drafter_is_right_to_the_depth_it_was_told():
    runtime, drafter = ScriptedRuntime(SCRIPT), ScriptedDrafter(SCRIPT, depths=[2, 0, 3, 1])
    assert isinstance(runtime, Runtime) and isinstance(drafter, Drafter)
    depths, ids = decode(runtime, drafter, 6)
    assert depths == [2, 0, 3, 1, 2, 0]
    assert ids[3:] == [SCRIPT.at(position) for position in range(3, len(ids))]


def test_skilled_drafter_is_right_with_its_probability():
    depths, _ = decode(ScriptedRuntime(SCRIPT), SkilledDrafter(SCRIPT, probability=0.7, seed=1), 400)
    assert np.mean(np.array(depths) >= 1) == pytest.approx(0.7, abs=0.06)
    assert np.mean(np.array(depths) >= 2) == pytest.approx(0.49, abs=0.06)


def test_a_beam_becomes_a_chain():
    state = DraftState(0, 5, np.zeros(1, dtype=np.float32), [4, 5])
    draft = ScriptedDrafter(SCRIPT, depths=[2]).propose([state], Beam((3, 2)))[0]
    assert draft.tokens.tolist() == [5, SCRIPT.at(2), SCRIPT.at(3)]


def test_byte_tokenizer_round_trip():
    tokenizer = ByteTokenizer()
    assert tokenizer.decode([*tokenizer.encode("naïve ✓", add_special=True), EOS]) == "naïve ✓"


def test_clock_passes_when_told():
    clock = FakeClock(tick=0.5)
    clock.advance(2.0)
    assert [clock(), clock()] == [2.5, 3.0]
