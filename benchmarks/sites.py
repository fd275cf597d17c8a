"""Real applications as sites: what a reset, a page and a snapshot of a world cost.

    python benchmarks/sites.py [SITE ...]

Prints medians: opening and closing a world without and with its first page, the answer to a page
that is not the first, in milliseconds; and the bytes of a snapshot after the reference of a task
that changes rows, with the milliseconds that restoring it takes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.real_sites.environment import Sites
from palaestra.environments.families.real_sites.site_world import SiteWorld

TRIES = 30
TASKS = {"shop": "add-to-cart", "forum": "reply", "cms": "change-intro", "code": "reopen-ticket"}


def median(action: Callable[[], object], tries: int = TRIES) -> float:
    """Return the median milliseconds of an action, after one that is not counted."""
    action()
    spent = []
    for _ in range(tries):
        begun = time.perf_counter()
        action()
        spent.append(1000 * (time.perf_counter() - begun))
    return statistics.median(spent)


def main() -> None:
    """Measure each application."""
    print(f"{'site':6} {'reset':>8} {'with page':>10} {'page':>8} {'snapshot':>9} {'restore':>8}")
    for site in sys.argv[1:] or TASKS:
        template = TASKS[site]

        def reset(site: str = site) -> None:
            world = SiteWorld([site], 3)
            table = next(iter(world.columns))
            world.rows(table)  # SQLite reads its tables' definitions with the first
            world.close()

        alone = median(reset)
        env = registry.make(f"sites/{site}:{template}")
        assert isinstance(env, Sites)
        task = registry.tasks(f"sites/{site}:{template}").task(Split.TRAIN, 0)
        whole = median(lambda env=env, task=task: env.reset(task))
        spent = []
        for action in env.oracle()[:-1]:
            begun = time.perf_counter()
            env.step(action)
            spent.append(1000 * (time.perf_counter() - begun))
        assert env._world is not None
        saved = env._world.save()
        restored = median(lambda env=env, saved=saved: env._world.load(saved))
        step = statistics.median(spent)
        print(f"{site:6} {alone:8.1f} {whole:10.1f} {step:8.1f} {len(saved):9d} {restored:8.1f}")
        env.close()


if __name__ == "__main__":
    main()
