"""Hydra's heads at work: everything but the cell is every recurrent drafter's."""

from __future__ import annotations

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.hydra.config import FAMILY, hydra_params
from medusakit.drafters.hydra.graph import HydraCell
from medusakit.drafters.recurrent.drafter import RecurrentDrafter
from medusakit.drafters.recurrent.graph import Cell


class HydraDrafter(RecurrentDrafter):
    """Reads h_t, the root and its own draft (Hydra, 2402.05109); remembers no row."""

    name = FAMILY

    def _make_cell(self, config: DrafterConfig, hidden_size: int) -> Cell:
        hydra_params(config)  # refuses what this version does not know
        return HydraCell(self._tensors, hidden_size)
