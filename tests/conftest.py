"""What must hold before any test is imported."""

import os
import signal

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported, which torch does: kernels run on the CPU

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background of a shell: tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
