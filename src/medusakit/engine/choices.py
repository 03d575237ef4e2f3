"""Drafters and trees of single answers: built at the first use, kept, and equal in output to all others."""

from __future__ import annotations

import threading
from dataclasses import replace

from medusakit.artifact.io import Artifact
from medusakit.config import nearest
from medusakit.drafters.hybrid.drafter import NAME as HYBRID
from medusakit.drafters.hybrid.drafter import HybridDrafter
from medusakit.drafters.registry import DRAFT_MODEL, HEADLESS, WITHOUT_HEADS
from medusakit.engine.loading import Loaded
from medusakit.engine.plan import Plan
from medusakit.engine.speculation import build_drafter, with_trees
from medusakit.engine.wishes import Wishes
from medusakit.errors import UsageError
from medusakit.tree.given import GivenTree, TreeWish, checked

MAX_KEPT = 64  # plans; a client may name many trees
LEAST_STATIC = 4  # nodes of a calibrated tree of which none is expected to pay: who asks for it wants it used


class Choices:
    """Of one model with the heads that it drafts with now. From any thread; a first use blocks while it is built."""

    def __init__(self, parts: Loaded, artifact: Artifact | None, wishes: Wishes) -> None:
        self._parts, self._artifact, self._wishes = parts, artifact, wishes
        self._lock = threading.Lock()
        self._drafters: dict[str | None, HybridDrafter] = {}
        self._plans: dict[tuple[str | None, object], Plan] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Drafters that can be asked for, as --drafter calls them."""
        if self._parts.cost is None:
            return ()
        heads = () if self._artifact is None else (self._artifact.manifest.drafter.family,)
        return (HYBRID, *heads, *HEADLESS, *([DRAFT_MODEL] if self._parts.second is not None else []))

    def plan(self, drafter: str | None, tree: TreeWish | None) -> Plan:
        """drafter  None: the loaded one
        tree     "dynamic", "static" (calibrated), "DxB", or rank paths; None: as loaded
        Raises UsageError for what there is not, and where trees are withheld because they may change the output.
        """
        self._check(drafter)
        shape = None if tree is None else checked(tree)
        with self._lock:
            found = self._plans.get((drafter, shape))
            if found is None:
                found = self._built(drafter, shape)
                while len(self._plans) >= MAX_KEPT:
                    del self._plans[next(iter(self._plans))]
                self._plans[drafter, shape] = found
        return found

    def _check(self, drafter: str | None) -> None:
        if self._parts.withheld:
            message = "drafter and tree cannot be chosen: in this weight format trees may change the output"
            raise UsageError(message, hint="--weights f32")
        names = self.names
        if not names:
            message = "drafter and tree cannot be chosen: the model was loaded without drafting"
            raise UsageError(message, hint="-m MODEL, without --heads none")
        if drafter is not None and drafter not in names:
            message = f"drafter {drafter!r} is not there; of this model: {', '.join(names)}"
            raise UsageError(message, hint=nearest(drafter, names) or HYBRID)

    def _built(self, name: str | None, tree: GivenTree | None) -> Plan:
        """Without a guard: who names a drafter wants it asked. Of a tree that is given, all nodes."""
        wishes = self._wishes if name is None else replace(self._wishes, drafter=name)
        artifact = None if wishes.drafter in WITHOUT_HEADS else self._artifact
        drafter = self._drafters.get(name) or self._make(name, wishes, artifact)
        if tree is not None:
            wishes = replace(wishes, tree=tree)
            wishes = replace(wishes, budget=None) if wishes.shaped else wishes
        assert self._parts.cost is not None
        runtime, cost = self._parts.runtime, self._parts.cost
        plan = with_trees(wishes, drafter, artifact, runtime, cost).controller.plan(())
        if plan.budget > 1 or wishes.budget is not None:
            return plan
        return with_trees(replace(wishes, budget=LEAST_STATIC), drafter, artifact, runtime, cost).controller.plan(())

    def _make(self, name: str | None, wishes: Wishes, artifact: Artifact | None) -> HybridDrafter:
        second = self._parts.second if wishes.drafter == DRAFT_MODEL else None
        parts = self._parts
        made = build_drafter(
            wishes, artifact, parts.source, second=second, threads=parts.threads, runtime=parts.runtime
        )
        self._drafters[name] = made
        return made
