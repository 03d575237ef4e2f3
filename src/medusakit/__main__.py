"""`python -m medusakit ...` is `medusa ...`, also where the script is not on the path."""

from __future__ import annotations

import sys

from medusakit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
