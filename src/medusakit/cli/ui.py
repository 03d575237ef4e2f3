"""The one console and theme. Answers and tables go to stdout, notes, warnings, progress and errors to stderr.

NO_COLOR, a pipe instead of a terminal, and --quiet are respected here and nowhere else.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusakit.artifact.files import write_atomic
from medusakit.errors import CacheError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, ProgressColumn, TaskID

    from medusakit.cli.theme import ThemedConsole

# What a terminal would obey instead of showing: C0 controls but newline and tab, DEL, and the C1 controls.
_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(9), *range(11, 32), *range(127, 160))}


class Ui:
    """Where a command speaks."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    @cached_property
    def out(self) -> ThemedConsole:
        return _console(stderr=False)

    @cached_property
    def err(self) -> ThemedConsole:
        return _console(stderr=True)

    @property
    def coloured(self) -> bool:
        """True where marks on single tokens can be seen: stdout is a terminal (underline works without colour)."""
        return self.out.is_terminal

    @staticmethod
    def safe(text: str) -> str:
        """The text without characters that a terminal would obey."""
        return text.translate(_CONTROLS)

    def piece(self, text: str, style: str | None = None) -> None:
        """A part of an answer, at once. A pipe gets the text as it is; a terminal gets no control characters."""
        if sys.stdout.isatty():
            shown = self.safe(text)
            text = self.out.paint(shown, style) if style else shown
        sys.stdout.write(text)
        sys.stdout.flush()

    def line(self, text: str = "", style: str | None = None) -> None:
        """A line of the result."""
        self.out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def show(self, renderable: RenderableType) -> None:
        """A table or a panel of the result."""
        self.out.print(renderable)

    def note(self, text: str) -> None:
        """A dim line beside the result."""
        if not self.quiet:
            self._beside(text, "note")

    def warn(self, text: str) -> None:
        self._beside(f"warning: {text}", "warning")

    def advise(self, message: str, hint: str) -> None:
        """A warning with what would help; nothing for an empty message."""
        if message:
            self.warn(f"{message}\n  try: {hint}")

    def error(self, message: str, hint: str | None = None) -> None:
        self._beside("error: ", "error", end="")
        self._beside(message)
        if hint:
            self._beside(f"  try: {hint}")

    def _beside(self, text: str, style: str | None = None, *, end: str = "\n") -> None:
        """On stderr. What is said there is not the result: a full disk under a log costs no answer."""
        try:
            self.err.print(text, style=style, end=end, markup=False, highlight=False, soft_wrap=True)
        except BrokenPipeError:
            raise
        except OSError:
            return

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, text: int = 1) -> None:
        """A table; the first `text` columns are left-aligned words, the others right-aligned numbers."""
        from rich.table import Table

        table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="head")
        for place, column in enumerate(columns):
            table.add_column(column, justify="left" if place < text else "right", overflow="fold")
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        self.show(table)

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        """A spinner on a terminal while something takes its time; nothing in a pipe."""
        if self.quiet or not self.err.is_terminal:
            yield
            return
        with self.err.status(text, spinner="dots"):
            yield

    @contextmanager
    def byte_progress(self, text: str) -> Iterator[tuple[Progress, TaskID]]:
        """A bar of bytes with rate and remaining time, on stderr; silent in a pipe or with --quiet."""
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        columns = (BarColumn(24), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True))
        with self._bar(TextColumn("{task.description}"), *columns) as bar:
            yield bar, bar.add_task(text, total=None)

    def stage_bar(self) -> Progress:
        """A bar whose text comes with every update: amount, pace, note."""
        from rich.progress import BarColumn, TextColumn

        fields = ("{task.fields[amount]}", "{task.fields[pace]}", "{task.fields[note]}")
        return self._bar(TextColumn("{task.description:<10}"), BarColumn(24), *(TextColumn(field) for field in fields))

    def _bar(self, *columns: ProgressColumn) -> Progress:
        from rich.progress import Progress

        silent = self.quiet or not self.err.is_terminal
        return Progress(*columns, console=self.err, disable=silent, transient=True)


def write_json(ui: Ui, json_file: str, document: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON document to a file, or to stdout for `-`. Raises CacheError if the file cannot be written."""
    text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
        return
    check_json_file(json_file)
    path = Path(json_file)
    if path.exists() and not path.is_file():  # /dev/stdout, a pipe: nothing to put in its place
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise _unwritable(json_file, str(error.strerror)) from None
    else:
        write_atomic(path.resolve(), text.encode())
    ui.note(f"wrote {json_file}")


def check_json_file(json_file: str) -> None:
    """Before the work is done that the file is for. Raises CacheError for a place that cannot be written."""
    path = Path(json_file)
    if json_file == "-":
        return
    if not json_file.strip() or path.is_dir():
        raise _unwritable(json_file, "it is a folder, expected a file")
    if not path.parent.is_dir():
        raise _unwritable(json_file, f"there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(json_file, "no permission")


def _unwritable(json_file: str, reason: str) -> CacheError:
    return CacheError(f"cannot write {json_file}: {reason}", hint="--json -   writes to stdout")


def _finite(value: Any) -> Any:
    """JSON knows no infinity and no NaN: null stands for them."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _console(*, stderr: bool) -> ThemedConsole:
    from medusakit.cli.theme import ThemedConsole

    return ThemedConsole(stderr=stderr)
