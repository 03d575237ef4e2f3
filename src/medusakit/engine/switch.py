"""What the scheduler steers by: a controller that can be exchanged and switched off, plans that are a
request's own, and drafters that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from medusakit.drafters.base import Drafter
from medusakit.engine.controller import Controller, reset_drafter
from medusakit.engine.drafting import DrafterFailure
from medusakit.engine.plan import PLAIN_PLAN, Plan
from medusakit.engine.session import Session
from medusakit.engine.step import Outcome


class Switch:
    """Another controller, which can be exchanged or switched off (plain decoding) between steps.

    A session with a plan of its own keeps it; the controller plans for the others together. Sessions that all decode
    plainly by their own wish say nothing about drafting, so it is not asked for them.

    A drafter that fails drafts no more until `forgive`: its rows decode plainly. on_failure is told of it once.
    """

    def __init__(self, inner: Controller, on_failure: Callable[[DrafterFailure], None]) -> None:
        self.inner, self.on = inner, True
        self._on_failure = on_failure
        self._broken: list[Drafter] = []
        self._own: dict[int, Drafter] = {}  # by row, where its plan is the session's own
        self._shared = PLAIN_PLAN  # of the last step

    @property
    def drafter(self) -> Drafter:
        return self.inner.drafter

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the drafters that failed."""
        return tuple(drafter.name for drafter in self._broken)

    @property
    def works(self) -> bool:
        """On, and the drafter that the controller plans for has not failed."""
        return self.on and self._usable(self.drafter)

    def replace(self, inner: Controller) -> None:
        """Another controller from the next step on."""
        self.inner = inner
        self.forgive()

    def forgive(self) -> None:
        """Let all drafters draft again."""
        self._broken.clear()

    def plan(self, sessions: Sequence[Session]) -> Plan:
        drafts = self.works and any(session.max_nodes != 1 for session in sessions)
        return self.inner.plan(sessions) if drafts else PLAIN_PLAN

    def plans(self, sessions: Sequence[Session]) -> list[Plan]:
        self._shared = self.plan([session for session in sessions if session.plan is None])
        return [self._of(session) for session in sessions]

    def failed(self, failure: DrafterFailure) -> None:
        if not self._usable(failure.drafter):
            return
        self._broken.append(failure.drafter)
        for row in failure.rows:
            with suppress(Exception):
                failure.drafter.forget(row)
        with suppress(Exception):
            reset_drafter(failure.drafter)
        self._on_failure(failure)

    def learn(self, outcome: Outcome) -> None:
        """The controller learns from steps that were wholly its own."""
        if not outcome.mixed and outcome.plan is self._shared:
            self.inner.learn(outcome)

    def forget(self, row: int) -> None:
        own = self._own.pop(row, None)
        if own is not None:
            self._guarded(own, (row,), partial(own.forget, row))
        self._guarded(self.drafter, (row,), partial(self.inner.forget, row))

    def reset(self) -> None:
        self._guarded(self.drafter, (), self.inner.reset)
        for row, drafter in self._own.items():
            self._guarded(drafter, (row,), partial(reset_drafter, drafter))

    def _of(self, session: Session) -> Plan:
        if session.plan is None:
            return self._shared
        if not self.on or not self._usable(session.plan.drafter):
            return PLAIN_PLAN
        self._own[session.row] = session.plan.drafter
        return session.plan

    def _usable(self, drafter: Drafter) -> bool:
        return not any(drafter is broken for broken in self._broken)

    def _guarded(self, drafter: Drafter, rows: tuple[int, ...], act: Callable[[], None]) -> None:
        """A drafter that cannot even forget must not keep a row from being given back."""
        try:
            act()
        except Exception as error:
            self.failed(DrafterFailure(drafter, rows, error))
