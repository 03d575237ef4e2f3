"""One generation as it happens: the events of a session, whose row is given back at the end."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from medusakit.engine.engine import Engine
from medusakit.engine.events import GenerationResult, TokenEvent
from medusakit.engine.session import Session


class Stream(Iterator[TokenEvent]):
    """Events of one generation, as they come. `result` sums up what has been emitted so far; leaving early is fine."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self._events = engine.run(session)
        self._open = True

    def __next__(self) -> TokenEvent:
        try:
            return next(self._events)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the generation and give its row back."""
        if self._open:
            self._open = False
            self._engine.finish(self._session)

    @property
    def result(self) -> GenerationResult:
        return self._session.result()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
