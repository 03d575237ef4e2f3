"""A model that the plugin has hooked: what its calls share, and how it becomes what it was."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from medusakit.engine.plan import Plan
from medusakit.engine.prefixes import PrefixCache
from medusakit.errors import UsageError
from medusakit.integrations.state import Kind, weights_stamp
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.torch.pack import pack_linears, unpack_linears

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Handle:
    """A hooked model. num_steps and num_tokens: of tree decoding so far; packs: linear layers for the CPU; kind: as it
    was hooked."""

    model: Any
    runtime: Runtime
    plan: Plan
    prefixes: PrefixCache | None
    own_generate: Callable[..., Any]
    kind: Kind
    num_steps: int = 0
    num_tokens: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    packs: bool = True
    _hooked: bool = field(default=True)
    _told: bool = False
    _stamp: Any = None

    @property
    def tau(self) -> float:
        """Mean tokens a step; 0 before the first."""
        return self.num_tokens / self.num_steps if self.num_steps else 0.0

    def unhook(self) -> None:
        """Give `generate` and the layers back and take the hook off the LM head. May be called twice."""
        if self._hooked:
            self._hooked = False
            del self.model.generate, self.model.medusa_handle
            self.runtime.close()
            if self.packs:
                unpack_linears(self.model)

    def fits(self) -> bool:
        """Whether the model is hooked, is what it was then, and not in training; else that is logged, once."""
        if self._hooked and not self.model.training and Kind.of(self.model) == self.kind:
            return True
        if self._hooked and not self._told:
            self._told = True
            now = "in training mode" if self.model.training else "of another dtype, device or LM head than it was"
            log.warning("the hooked model is %s: it generates as before; hook it again as it is to be used", now)
        return False

    def refresh(self) -> None:
        """Pack the layers that are not packed: whoever trained the model, moved it or read its weights got ordinary
        ones. KV of other weights or adapters than now is not used."""
        packed = self.packs and pack_linears(self.model)
        if self.prefixes is None:
            return
        stamp = weights_stamp(self.model)
        if packed or stamp != self._stamp:
            self.prefixes.clear()
        self._stamp = stamp

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy of the model would go on generating with this one."""
        raise UsageError("a hooked model cannot be copied or pickled", hint="handle.unhook()")

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.unhook()
