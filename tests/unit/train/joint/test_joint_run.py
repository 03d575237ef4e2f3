"""A run: it learns, a kill leaves it where it was, other data are refused, two processes do what one does."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from joint_toys import HEADS, JOINT, answers, loaded, model_folder
from medusakit.errors import DatasetError, UsageError
from medusakit.models.resolve import open_weights
from medusakit.train.dataset import Dataset
from medusakit.train.heads import untrained_heads
from medusakit.train.joint import run as module
from medusakit.train.joint.config import JointConfig
from medusakit.train.joint.run import Parts, open_accelerator, train_joint
from medusakit.train.progress import Progress

pytestmark = pytest.mark.usefixtures("one_thread")
Run = partial[dict[str, torch.Tensor]]
DROPS = JOINT.model_copy(update={"dropout": 0.2, "epochs": 3})


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Dataset]:
    folder = tmp_path_factory.mktemp("joint")
    resolved = model_folder(folder / "m")
    return resolved, answers(folder / "set", loaded(resolved))


def begin(toys: tuple[Any, Dataset], work: Path, config: JointConfig = JOINT, **more: Any) -> dict[str, torch.Tensor]:
    resolved, dataset = toys
    torch.manual_seed(0)
    begun = untrained_heads(dataset, open_weights(resolved), HEADS)
    parts = Parts(loaded(resolved), begun.net.requires_grad_(True), begun.backdrop)
    return train_joint(parts, dataset, config, HEADS, work, open_accelerator(), **more)


def test_a_killed_run_continues_to_the_same_bits(
    toys: tuple[Any, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = begin(toys, tmp_path / "whole", DROPS)

    class Killed(BaseException):
        """Like kill -9: nothing is saved on the way out."""

    def kill(progress: Progress) -> None:
        if progress.done == 5:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, "Meter", partial(module.Meter, every_s=0.0))
        begin(toys, tmp_path / "cut", DROPS, on_progress=kill, save_every=3)
    state = torch.load(tmp_path / "cut" / "joint-0.pt", weights_only=True)
    assert state["trainer"]["step"] == 3
    continued = begin(toys, tmp_path / "cut", DROPS)
    assert whole.keys() == continued.keys() and len(whole) > 10
    assert all(torch.equal(whole[name], continued[name]) for name in whole)
    assert any(bool(value.any()) for name, value in whole.items() if "lora_B" in name), "nothing was learnt"


def test_a_checkpoint_of_other_settings_is_refused(toys: tuple[Any, Dataset], tmp_path: Path) -> None:
    begin(toys, tmp_path)
    with pytest.raises(UsageError, match="other settings"):
        begin(toys, tmp_path, JOINT.model_copy(update={"lambda0": 0.3}))


def test_distilling_stays_nearer_to_the_model_than_learning_its_words(
    toys: tuple[Any, Dataset], tmp_path: Path
) -> None:
    """The adapter's product is the change of the weights: naive tuning moves them further."""

    def moved(trained: dict[str, torch.Tensor]) -> float:
        pairs = [(value, trained[name.replace("lora_A", "lora_B")]) for name, value in trained.items()
                 if "lora_A" in name]  # fmt: skip
        return float(sum((b @ a).norm() ** 2 for a, b in pairs))

    settings = JOINT.model_copy(update={"epochs": 4})
    assert moved(begin(toys, tmp_path / "a", settings)) < 0.5 * moved(begin(toys, tmp_path / "b", settings.naive()))


def test_states_of_another_model_are_refused(toys: tuple[Any, Dataset], tmp_path: Path) -> None:
    other = model_folder(tmp_path / "other", seed=5)
    with pytest.raises(DatasetError, match="not this model's"):
        begin((other, toys[1]), tmp_path / "work")


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from joint_toys import HEADS, JOINT, loaded
from medusakit.models.resolve import ResolvedModel, open_weights
from medusakit.train.dataset import Dataset
from medusakit.train.heads import untrained_heads
from medusakit.train.joint.run import Parts, open_accelerator, train_joint
import torch
torch.set_num_threads(1)
folder = Path(sys.argv[2])
resolved = ResolvedModel("m", folder / "m", "hf")
dataset = Dataset([folder / "set"])
accelerator = open_accelerator()
begun = untrained_heads(dataset, open_weights(resolved), HEADS)
parts = Parts(loaded(resolved), begun.net.requires_grad_(True), begun.backdrop)
trained = train_joint(parts, dataset, JOINT, HEADS, folder / "work", accelerator)
if accelerator.is_main_process:
    torch.save({"trained": trained, "processes": accelerator.num_processes}, folder / "result.pt")
"""


@pytest.mark.slow
def test_two_processes_hold_the_same_weights(toys: tuple[Any, Dataset], tmp_path: Path) -> None:
    """Gradients are averaged over processes, each of which takes half of the steps. (accelerate's own launcher starts
    one process where there is no accelerator; torchrun is what it calls for several.)"""
    resolved, _ = toys
    (tmp_path / "m").symlink_to(resolved.path)
    (tmp_path / "set").symlink_to(resolved.path.parent / "set")
    (tmp_path / "run.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               str(tmp_path / "run.py"), str(Path(__file__).parents[3]), str(tmp_path)]  # fmt: skip
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = torch.load(tmp_path / "result.pt", weights_only=True)
    assert result["processes"] == 2
    states = [torch.load(tmp_path / "work" / f"joint-{own}.pt", weights_only=True)["trainer"] for own in (0, 1)]
    assert all(torch.equal(a, b) for a, b in zip(states[0]["trained"], states[1]["trained"], strict=True))
    assert any(bool(value.any()) for name, value in result["trained"].items() if "lora_B" in name)
    single = begin(toys, tmp_path / "single")
    assert single.keys() == result["trained"].keys()
    steps = torch.load(tmp_path / "single" / "joint-0.pt", weights_only=True)["trainer"]["step"]
    assert states[0]["step"] == -(-steps // 2)
    assert np.isfinite([float(value.sum()) for value in result["trained"].values()]).all()
