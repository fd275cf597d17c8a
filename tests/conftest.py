"""Settings that must be made before any test imports torch.

OpenMP threads that spin while they wait slow down every other process of the
machine, the environment workers among them; passive ones sleep.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("KMP_BLOCKTIME", "0")

from hypothesis import settings

settings.register_profile("palaestra", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "palaestra")
