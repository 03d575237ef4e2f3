"""Where medusakit keeps what it downloads and builds: MEDUSA_HOME, or ~/.cache/medusakit."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The cache folder; it need not exist yet."""
    configured = os.environ.get("MEDUSA_HOME")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "medusakit"
