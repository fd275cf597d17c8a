"""Benchmarks are programs, not a package: their folder is put on the path, behind all others."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))
