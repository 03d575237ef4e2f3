"""Where a cut run of training goes on: one file with the trainer's state and what it belongs to."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, Protocol

import torch

from medusakit.artifact.files import write_atomic
from medusakit.errors import DatasetError, UsageError


class Trained(Protocol):
    """A trainer whose state is one dictionary of tensors, numbers and names."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Checkpoint:
    """One file, replaced atomically; refused if it belongs to other settings or data."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self._path, self._identity = path, identity

    def save(self, trainer: Trained) -> None:
        """Raises RuntimeFailure on a full disk; the last checkpoint then stays."""
        buffer = io.BytesIO()
        torch.save({"identity": self._identity, "trainer": trainer.state_dict()}, buffer)
        write_atomic(self._path, buffer.getvalue())

    def restore(self, trainer: Trained) -> None:
        """Raises UsageError for a file of other settings or data, DatasetError for one that is damaged."""
        if not self._path.exists():
            return
        try:
            state = torch.load(self._path, weights_only=True)
            identity, trained = state["identity"], state["trainer"]
        except (OSError, EOFError, RuntimeError, pickle.UnpicklingError, LookupError, TypeError, ValueError) as cause:
            message = f"the checkpoint {self._path} is damaged or cut short"
            raise DatasetError(message, hint=f"rm {self._path}   then training starts again") from cause
        if identity != self._identity:
            raise UsageError(f"{self._path} was begun with other settings or other data", hint=f"rm {self._path}")
        trainer.load_state_dict(trained)
