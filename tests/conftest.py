"""What must hold before any test is imported."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported, which torch does: kernels run on the CPU
