"""`medusa`: the table of commands, and the one place that turns errors into messages and exit codes.

Exit codes: 0, 2 usage, 3 model or artifact, 4 runtime, 130 interrupt, 143 terminated.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from medusakit import __version__
from medusakit.cli.group import LazyGroup
from medusakit.errors import MedusaError, UsageError

COMMANDS = {
    "run": ("medusakit.cli.run:run", 'Answer one prompt (the default: medusa "...").'),
    "chat": ("medusakit.cli.chat:chat", "Talk over several turns."),
    "compare": ("medusakit.cli.compare:compare", "Plain and Medusa on the same prompts, side by side."),
    "train": ("medusakit.cli.train:train", "Make heads for a model, stage by stage or all at once."),
    "serve": ("medusakit.cli.serve:serve", "Answer over HTTP, as OpenAI's API does."),
    "bench": ("medusakit.cli.bench:bench", "Measure speed on a workload, or the machine."),
    "profile": ("medusakit.cli.profile:profile", "Lengths and load of requests, and settings that suit them."),
    "verify": ("medusakit.cli.verify:verify", "Audit that the output is exactly the model's own."),
    "models": ("medusakit.cli.models:models", "List, fetch, show and remove models; clean the cache."),
    "tree": ("medusakit.cli.tree:tree", "Show the token tree, or search the budget that pays."),
    "doctor": ("medusakit.cli.doctor:doctor", "Check the machine, the cache, the model and its heads."),
    "config": ("medusakit.cli.config:config", "Show settings and where each came from."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="medusa")
def cli() -> None:
    """Faster answers from a large language model, exactly its own.

    \b
    medusa "Explain a B-tree in two sentences"
    medusa chat
    """


def run_line(args: Sequence[str] | None, command: click.Command, name: str) -> int:
    """Run a command line (None: this process's) and return its exit code; messages go to stderr."""
    arguments = list(sys.argv[1:] if args is None else args)
    _open_closed_streams()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    debug = "--debug" in arguments or bool(os.environ.get("MEDUSA_DEBUG"))
    try:
        with _unwinding_sigterm():
            code = command.main(args=arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        return _closed_pipe()
    except (KeyboardInterrupt, click.Abort):
        return 130
    except click.ClickException as error:
        return _report(_as_usage(error, name), debug)
    except MedusaError as error:
        return _report(error, debug)
    except MemoryError as error:
        return _report(_unexpected("the machine ran out of memory", "a smaller model, or --weights int4", error), debug)
    except OSError as error:
        return _report(_unexpected(f"{error.strerror or error}: {error.filename or ''}", "medusa doctor", error), debug)
    except Exception as error:
        text = f"internal error: {type(error).__name__}: {error}"
        return _report(_unexpected(text, "the same command with --debug, and report what it shows", error), debug)


def _open_closed_streams() -> None:
    """A shell may start us without some stream (`>&-`); Python then has None there, which nothing can write to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  as long as the process


@contextmanager
def _unwinding_sigterm() -> Iterator[None]:
    """SIGTERM unwinds like an error, so that scratch files and child processes go; the exit code is the usual 143."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread alone
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(error: MedusaError, debug: bool) -> int:
    from medusakit.cli.ui import Ui

    if debug:
        import traceback

        traceback.print_exception(error)
    Ui().error(error.message, error.hint)
    return error.exit_code


def _as_usage(error: click.ClickException, name: str) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if isinstance(context, click.Context) else name
    usage = UsageError(error.format_message(), hint=f"{path} --help")
    usage.__cause__ = error
    return usage


def _unexpected(message: str, hint: str, cause: Exception) -> MedusaError:
    from medusakit.errors import RuntimeFailure

    failure = RuntimeFailure(message.strip(" :"), hint=hint)
    failure.__cause__ = cause
    return failure


def _closed_pipe() -> int:
    """The reader left (`| head`): that is its right. Point stdout at nothing so that no later flush complains."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
