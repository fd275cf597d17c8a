"""Runs whose files were changed from outside, as disks, tools and people do it."""

from __future__ import annotations

import random
from pathlib import Path

from palaestra.core.episode import Key
from palaestra.store.run_folder import RunFolder
from tests.store import samples

PAGE = 4096  # bytes, of SQLite's pages
EPISODES = 120


def make(path: Path, recipe: dict[str, object] | None = None) -> Path:
    """A run of `EPISODES` episodes in two phases, and an unfinished one."""
    with RunFolder.create(path, recipe or {"summary": "a run", "seed": 1}) as run:
        for number in range(EPISODES):
            run.database.finish(samples.episode(Key(f"rl/{1 + number % 2}", number // 2)))
        for number in range(5):
            run.database.append(Key("rl/3", 0), samples.step(number))
        run.database.add_metrics("rl", 1, {"loss": 0.5})
        run.database.add_metrics("rl", 2, {"loss": 0.25})
        run.database.put("stages", [])
    return path


def garble(run: Path, seed: int, pages: int = 1) -> None:
    """Random bytes over whole pages in the middle of the database."""
    rng, file = random.Random(seed), run / "run.sqlite"
    data = bytearray(file.read_bytes())
    for number in rng.sample(range(1, len(data) // PAGE), pages):
        data[number * PAGE : (number + 1) * PAGE] = rng.randbytes(PAGE)
    file.write_bytes(data)


def garble_all_but_the_first_page(run: Path) -> None:
    file = run / "run.sqlite"
    garble(run, 0, file.stat().st_size // PAGE - 1)
