"""Commands under earlier documents' names: `medusa-benchmark`, `medusa-env-checker`, `medusa-profiler`."""

from __future__ import annotations

import sys

from medusakit.cli.main import main


def benchmark() -> int:
    """`medusa-benchmark --mode=hardware ...` is `medusa bench hardware ...`; the mode is hardware if none is given."""
    return main(["bench", *benchmark_arguments(sys.argv[1:])])


def env_checker() -> int:
    """`medusa-env-checker ...` is `medusa doctor ...`."""
    return main(["doctor", *sys.argv[1:]])


def profiler() -> int:
    """`medusa-profiler ...` is `medusa profile ...`."""
    return main(["profile", *sys.argv[1:]])


def benchmark_arguments(words: list[str]) -> list[str]:
    """Move the mode in front.

    >>> benchmark_arguments(["--json", "-", "--mode=offline"])
    ['offline', '--json', '-']
    """
    mode, rest = "hardware", []
    remaining = iter(words)
    for word in remaining:
        if word == "--mode":
            mode = next(remaining, mode)
        elif word.startswith("--mode="):
            mode = word.removeprefix("--mode=")
        else:
            rest.append(word)
    return [mode, *rest]
