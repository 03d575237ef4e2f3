"""The command line on the real model: what a person sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.model, pytest.mark.smoke]
MEDUSA = str(Path(sys.executable).parent / "medusa")
PROMPT = "Explain a B-tree in two sentences"


def medusa(*words: str, piped: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([MEDUSA, *words], input=piped, capture_output=True, text=True, check=False)


def document(*words: str) -> Any:
    done = medusa(*words, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("weights", "temperature"), [("f32", "0"), ("f32", "0.8"), ("int8", "0"), ("int4", "0.8")])
def test_speculation_does_not_change_the_answer(weights: str, temperature: str) -> None:
    """Equal tokens, or a first difference at a tie in the sense that the format promises (bench/equality.py)."""
    words = ("compare", PROMPT, "--weights", weights, "--temperature", temperature, "--seed", "3", "-n", "48")
    report = document(*words, "--budget", "8")
    if report["model"]["exact"] != "bitwise-ties":
        pytest.skip(f"on this processor {weights} decodes plainly (docs/decisions/0003)")
    assert report["modes"]["medusa"]["tau"] > 1.2, "next to nothing was accepted"
    same = report["identical"]["medusa==plain"]
    assert same["different"] == 0, same["first_differences"]
    assert same["equal"] + same["tied"] == 1


def test_stop_string_is_not_shown() -> None:
    whole = medusa("run", PROMPT, "-n", "32").stdout
    word = whole.split()[4]
    assert word not in medusa("run", PROMPT, "-n", "32", "--stop", word).stdout


def test_ctrl_c_keeps_the_answer_so_far() -> None:
    command = [MEDUSA, "run", "Write a very long story about the sea", "-n", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.read(1)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        rest, notes = process.stdout.read(), process.stderr.read()
        assert process.wait(10) == 130
    assert len(first + rest) > 10 and rest.endswith("\n")
    assert "stopped" in notes and "Traceback" not in notes


def test_a_reader_that_leaves_early() -> None:
    command = f"{MEDUSA} run '{PROMPT}' -n 200 | head -c 5"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert len(done.stdout) == 5
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr


def test_chat_keeps_what_was_said() -> None:
    done = medusa("chat", "-n", "24", piped="What is a heap?\nGive an example.\n/stats\n/exit\n")
    assert done.returncode == 0, done.stderr
    reused = next(line for line in done.stdout.splitlines() if line.startswith("num_reused_tokens"))
    assert int(reused.split()[1]) > 20


def test_a_prompt_longer_than_the_context() -> None:
    done = medusa("run", "word " * 400, "--max-context", "64")
    assert done.returncode == 4
    assert "64" in done.stderr and "try:" in done.stderr


def test_heads_of_another_place_are_refused(tmp_path: Path) -> None:
    done = medusa("run", PROMPT, "--heads", str(tmp_path))
    assert done.returncode == 3
    assert str(tmp_path) in done.stderr


def test_a_truncated_model_is_refused(tmp_path: Path) -> None:
    whole = Path(medusa("models", "path", "smollm2").stdout.strip())
    broken = tmp_path / "broken.gguf"
    with whole.open("rb") as source:
        broken.write_bytes(source.read(1_000_000))
    done = medusa("run", PROMPT, "-m", str(broken))
    assert done.returncode == 3
    assert "broken.gguf" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = subprocess.run(
        [MEDUSA, "models", "pull", "smollm2"],
        env=os.environ | {"MEDUSA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "MEDUSA_HOME" in done.stderr
