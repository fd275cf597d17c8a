"""The accounts of a run: which stages are done, and what time, memory and tokens they took."""

from __future__ import annotations

import time
from typing import Any

from palaestra.rollout.worker_pool import WorkerPool
from palaestra.runtime.machine import peak_memory_bytes
from palaestra.store.database import Database


class Accounts:
    """What a run has done and used so far, of all its processes."""

    def __init__(self, store: Database, pool: WorkerPool | None) -> None:
        """Begin to count this process's time.

        Args:
            store: of the run.
            pool: whose workers' memory counts too.
        """
        self._store, self._pool = store, pool
        self.actor_bytes = 0  # peak memory of a process that acts for this one
        self._counted = time.monotonic()

    def stages_done(self) -> list[dict[str, Any]]:
        return list(self._store.get("stages") or [])

    def is_done(self, stage: str) -> bool:
        return any(row["name"] == stage for row in self.stages_done())

    @property
    def seconds(self) -> float:
        """The run's time so far, of all its processes."""
        counted = (self._store.get("totals") or {"seconds": 0.0})["seconds"]
        return float(counted + time.monotonic() - self._counted)

    def count_time(self) -> None:
        """Add the time since the last count to the run's total, which survives a crash."""
        totals = dict(self._store.get("totals") or {"seconds": 0.0, "peak_memory_bytes": 0})
        now = time.monotonic()
        totals["seconds"] += now - self._counted
        self._counted = now
        workers = self._pool.max_rss_bytes() if self._pool is not None else 0
        totals["peak_memory_bytes"] = max(
            totals["peak_memory_bytes"], peak_memory_bytes() + workers + self.actor_bytes
        )
        self._store.put("totals", totals)

    def finish_stage(
        self, name: str, seconds: float, *, sampled: int, prompt: int, trained: int
    ) -> None:
        """Record the cost of a stage, summed over resumptions."""
        done = self.stages_done()
        before = sum(row["seconds"] for row in done if row["name"] == name)
        row = {
            "name": name,
            "seconds": before + seconds,
            "sampled_tokens": sampled,
            "prompt_tokens": prompt,
            "trained_tokens": trained,
            "peak_memory_bytes": peak_memory_bytes(),
        }
        known = [row["name"] for row in done]
        position = known.index(name) if name in known else len(known)
        self._store.put("stages", [*done[:position], row, *done[position + 1 :]])
        self.count_time()
