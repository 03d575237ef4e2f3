"""What trained heads share: the draft vocabulary, the tensors, and the plans of static trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.plan import Level, plan_levels
from medusakit.drafters.rows import TableRows
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import Runtime
from medusakit.tree.topology import FloatArray, IntArray, Topology

_KEPT_PLANS = 64


class HeadsDrafter:
    """Base of the families that are trained: it holds what an artifact gives them. Remembers no row; families that look
    back do."""

    def __init__(
        self,
        config: DrafterConfig,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        source: WeightSource,
        *,
        threads: int | None = None,
        quantised: bool = True,
        runtime: Runtime | None = None,
    ) -> None:
        """tensors: as in the artifact. quantised False: float32 inside, slower; for comparing with the torch module.
        runtime: the model's, for families that draft on its device."""
        self._depth, self._threads, self._quantised, self._runtime = config.depth, threads, quantised, runtime
        ids = tensors.get("draft_ids")
        self._draft_ids: IntArray = np.arange(source.spec.vocab_size) if ids is None else ids.astype(np.int64)
        self._head_rows = TableRows.lm_head(source).take(self._draft_ids)
        self._tensors = {name: np.asarray(value, np.float32) for name, value in tensors.items() if name != "draft_ids"}
        self._plans: dict[Topology, tuple[Level, ...]] = {}
        self._prepare(config, source)

    def _prepare(self, config: DrafterConfig, source: WeightSource) -> None:
        """What the family needs besides. Raises ArtifactError for parameters that it does not know."""
        raise NotImplementedError

    @property
    def max_depth(self) -> int:
        return self._depth

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        """A draft begins with the newest hidden state: nothing to remember."""

    def forget(self, row: int) -> None:
        """Nothing was kept."""

    def _levels(self, shape: Topology) -> tuple[Level, ...]:
        """The levels of a static shape, kept for the next draft."""
        if shape not in self._plans:
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.clear()
            self._plans[shape] = plan_levels(shape, max_depth=self._depth, vocab_size=len(self._draft_ids))
        return self._plans[shape]
