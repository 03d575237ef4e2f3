"""`medusa chat`: several turns on one KV cache, with commands that begin with a slash."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, SAMPLING, SPECULATION, settings
from medusakit.config import KEYS, nearest
from medusakit.errors import MedusaError, UsageError

if TYPE_CHECKING:
    from medusakit.engine.conversation import Chat as Conversation
    from medusakit.engine.events import GenerationResult
    from medusakit.llm import LLM

HELP = """\
/help             this list
/set NAME VALUE   change a setting of the next turns, e.g. /set temperature 0.7
/set              show what can be set
/stats            figures of the last answer
/clear            forget the conversation
/exit             leave (so does Ctrl-D)
\"\"\"               begin and end a message of several lines"""
SETTABLE = (
    *(name for name in SAMPLING if name not in ("stop", "system")),  # what a turn has, not a conversation
    "accept",
    "speculation",
    "highlight",
)
_FIELDS = {"accept": "acceptance"}


@click.command(cls=Command)
@settings(*MODEL, *SAMPLING, "speculation", *SPECULATION, "highlight")
def chat() -> None:
    """Talk over several turns; what was said before is not computed again.

    Accepted tokens are underlined. /help lists the commands.
    """
    app = current_app()
    llm = app.load()
    ChatLoop(app, llm, interactive=sys.stdin.isatty()).run()


class ChatLoop:
    """Reads messages and commands until the end."""

    def __init__(self, app: App, llm: LLM, *, interactive: bool) -> None:
        config = app.config
        self.ui = app.ui
        self.llm = llm
        self.interactive = interactive
        self.talk: Conversation = llm.chat(config.system, app.sampling())
        self.speculation = config.speculation
        self.highlight = ("accepted" if app.ui.coloured else "none") if config.highlight == "auto" else config.highlight
        self.last: GenerationResult | None = None

    def run(self) -> None:
        """Until /exit or the end of the input. An error of one turn does not end the conversation."""
        if self.interactive:
            self.ui.note("/help lists the commands, /exit leaves")
        for message in self._messages():
            try:
                if message.startswith("/"):
                    if not self.command(message):
                        break
                else:
                    self.turn(message)
            except MedusaError as error:
                self.ui.error(error.message, error.hint)
        self.talk.close()

    def turn(self, message: str) -> None:
        """Ask and show the answer with its figures."""
        from medusakit.cli.answer import show_answer
        from medusakit.cli.footer import answer_footer

        answer = self.talk.send(message, speculation=self.speculation)
        self.last = show_answer(self.ui, answer, highlight=self.highlight)
        self.ui.note(answer_footer(self.llm, self.last))

    def command(self, line: str) -> bool:
        """Carry out a slash command; False ends the conversation."""
        name, *words = line[1:].split(maxsplit=2)[:3] or [""]
        if name in ("exit", "quit", "bye"):
            return False
        if name == "set":
            self._set(words)
        elif name == "clear":
            self.talk.clear()
            self.ui.note("the conversation is empty")
        elif name == "stats":
            self._stats()
        elif name in ("help", "?"):
            self.ui.line(HELP)
        else:
            raise UsageError(f"no such command: /{name}", hint="/help")
        return True

    def _set(self, words: list[str]) -> None:
        if len(words) < 2:
            self.ui.table("", ("setting", "value"), [(name, self._value(name)) for name in SETTABLE], text=2)
            return
        name, text = words[0].replace("-", "_"), words[1]
        if name not in SETTABLE:
            close = nearest(name, SETTABLE)
            raise UsageError(f"cannot set `{name}`", hint=f"/set {close} {text}" if close else "/set")
        value = KEYS[name].parse(text, f"/set {name}")
        if name in ("speculation", "highlight"):
            setattr(self, name, value)
        else:
            params = replace(self.talk.params, **{_FIELDS.get(name, name): value})
            params.validate()
            self.talk.params = params
        self.ui.note(f"{name} = {value}")

    def _value(self, name: str) -> object:
        if name in ("speculation", "highlight"):
            return getattr(self, name)
        return getattr(self.talk.params, _FIELDS.get(name, name))

    def _stats(self) -> None:
        if self.last is None:
            self.ui.note("nothing has been answered yet")
            return
        from medusakit.engine.document import statistics

        rows = [(name, _shown(value)) for name, value in statistics(self.last.stats).items()]
        self.ui.table("", ("last answer", "value"), rows, text=2)

    def _messages(self) -> Iterator[str]:
        """Messages, one a line or between two lines of three quotes; empty ones are skipped."""
        lines = self._lines()
        for line in lines:
            message = line.strip()
            if message == '"""':
                message = "\n".join(iter(lambda: next(lines, '"""'), '"""')).strip()
            if message:
                yield message

    def _lines(self) -> Iterator[str]:
        if not self.interactive:
            yield from (line.rstrip("\n") for line in sys.stdin)
            return
        _enable_line_editing()
        while True:
            try:
                yield input("> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                self.ui.note("\n/exit or Ctrl-D leaves")


def _enable_line_editing() -> None:
    try:
        import readline  # noqa: F401  importing it is what gives `input` its line editing
    except ImportError:
        return


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_shown(item) for item in value) or "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
