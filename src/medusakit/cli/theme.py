"""The theme, and a rich console that leaves a closed pipe to `main`."""

from __future__ import annotations

from typing import NoReturn

from rich.console import COLOR_SYSTEMS, Console
from rich.theme import Theme

PIPE_WIDTH = 160  # tables in a pipe or a file: nobody's window decides where they break
THEME = Theme(
    {
        "accepted": "green underline",
        "step.even": "none",
        "step.odd": "reverse",
        "note": "dim",
        "warning": "yellow",
        "error": "bold red",
        "good": "green",
        "bad": "red",
        "head": "bold",
    }
)


class ThemedConsole(Console):
    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, theme=THEME, highlight=False)
        if not self.is_terminal:
            self.width = PIPE_WIDTH

    def on_broken_pipe(self) -> NoReturn:
        """rich would exit with 1; `main` decides instead."""
        raise BrokenPipeError

    def paint(self, text: str, style: str) -> str:
        """`text` with the terminal's codes for `style`, and nothing else changed (rich would expand tabs)."""
        look = self.get_style(style)
        look = look.without_color if self.no_color else look
        return look.render(text, color_system=COLOR_SYSTEMS[self.color_system] if self.color_system else None)
