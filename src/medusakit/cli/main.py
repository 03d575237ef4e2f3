"""The entry point `medusa`. It imports nothing before it can be interrupted: imports are most of a short command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click


def main(args: Sequence[str] | None = None, command: click.Command | None = None, name: str = "medusa") -> int:
    """Run a command line (of `command`, by default `medusa`'s own) and return its exit code. Ctrl-C gives 130."""
    try:
        from medusakit.cli.interrupt import interrupt_between_loads

        with interrupt_between_loads():
            from medusakit.cli.root import cli, run_line

            return run_line(args, cli if command is None else command, name)
    except KeyboardInterrupt:
        return 130
