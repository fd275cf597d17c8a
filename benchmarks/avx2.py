"""Hold a program to AVX2, as on a processor without AVX-512 and bf16.

    python benchmarks/avx2.py palaestra train default --set model.precision=fp32

torch, oneDNN, MKL and our compiled kernels choose instructions by these variables. They have to
be set before torch is imported. `model.precision=auto` becomes fp32 by them.
"""

from __future__ import annotations

import os
import sys

VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "CFLAGS": "-march=haswell",  # of our kernels, see c_build.py
}


def hold() -> None:
    """Return if this process is held; else begin it again, held, before it does anything."""
    if any(os.environ.get(name) != value for name, value in VARIABLES.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | VARIABLES)


if __name__ == "__main__":
    os.environ.update(VARIABLES)
    os.execvp(sys.argv[1], sys.argv[1:])
