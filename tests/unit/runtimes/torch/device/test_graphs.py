"""Captures by key, and what happens where the device refuses one."""

from __future__ import annotations

from typing import Any

import torch

from medusakit.runtimes.torch.device.facts import capture_fault
from medusakit.runtimes.torch.device.graphs import Graphs, capture_for
from recorded import Recording


def test_work_is_captured_once_and_replayed_on_what_its_tensors_hold() -> None:
    recording, cells, factor = Recording(), torch.zeros(2), [2.0]
    graphs = Graphs(recording, lambda reason: None)

    def work() -> None:
        cells.mul_(factor[0]).add_(1)

    graphs.run("a", work)
    cells.fill_(5)
    factor[0] = 100.0  # of the host's: a replay does not look at it again
    graphs.run("a", work)
    assert cells.tolist() == [11, 11]
    graphs.run("b", work)
    assert (recording.num_captures, recording.num_replays, len(graphs)) == (2, 3, 2)
    graphs.forget(lambda key: key == "a")
    graphs.run("b", work)
    assert recording.num_captures == 2
    graphs.run("a", work)
    assert recording.num_captures == 3


def test_a_refused_capture_is_told_once_and_the_work_is_done_all_the_same() -> None:
    told: list[str] = []
    graphs = Graphs(Recording(), told.append)
    cells, seen = torch.ones(3), []

    def work() -> None:
        seen.append(float(cells.sum()))  # reads a value: no graph can hold that

    for key in ("a", "a", "b"):
        graphs.run(key, work)
    assert seen == [3.0] * 3
    assert len(told) == 1 and "not permitted when stream is capturing" in told[0] and graphs.reason == told[0]


def test_the_cpu_captures_nothing() -> None:
    assert capture_for(torch.device("cpu")) is None


def test_the_doctor_tries_a_capture() -> None:
    def broken(work: Any) -> Any:
        raise RuntimeError("no such driver\nat all")

    cpu = torch.device("cpu")
    assert capture_fault(cpu, lambda device: Recording()) == ""
    assert capture_fault(cpu, lambda device: broken) == "no such driver"
    assert "did not do" in capture_fault(cpu, lambda device: lambda work: lambda: None)
    assert "nothing captures" in capture_fault(cpu)
