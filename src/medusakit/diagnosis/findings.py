"""What the doctor says: of a machine (cli/checks.py) and of heads (artifact.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """code: stable name of the check or the fault. evidence: what was measured or read, with its values.
    remedy: what to do, empty where nothing is wrong."""

    code: str
    severity: Severity
    evidence: str
    remedy: str = ""
