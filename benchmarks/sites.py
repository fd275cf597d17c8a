"""Real applications as sites: what a reset, a page and a snapshot of a world cost.

    python benchmarks/sites.py [SITE ...] [--worlds 100] [--snapshots 12]

With `--worlds` it opens that many over the sites, each with its first page, holds all of them, and
prints the proportional share of memory of this process and its browser. Otherwise it prints
medians: opening and closing a world without and with its first page, the answer to a page
that is not the first, in milliseconds, and the processor time of the first; and the bytes of a
snapshot of an episode after the reference of a task that changes rows, with the milliseconds that
restoring it takes by its state, with its page.

With `--snapshots` it takes that many tasks of each site at a random place of their references
instead, restores each in another session of the same process, and prints medians: bytes of a
snapshot and milliseconds that restoring takes, with the processor time of all processes, the first
time and later; the first time all answers of sites are worked out again, as in another process. It
counts how many came back by their state, by the gestures since their page was loaded (`page`), and
only by all gestures (`replayed`).
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable

import psutil

from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.real_sites.environment import Sites
from palaestra.environments.families.real_sites.known_answers import KNOWN
from palaestra.environments.families.real_sites.site_world import SiteWorld

TRIES = 30
TASKS = {"shop": "add-to-cart", "forum": "reply", "cms": "change-intro", "code": "reopen-ticket"}


HEADS = ("bytes", "largest", "first", "(spent)", "later", "(spent)", "state", "page", "replayed")
AGAIN = 3  # times that each snapshot is restored after the first


def median(action: Callable[[], object], tries: int = TRIES) -> float:
    """Return the median milliseconds of an action, after one that is not counted."""
    action()
    spent = []
    for _ in range(tries):
        begun = time.perf_counter()
        action()
        spent.append(1000 * (time.perf_counter() - begun))
    return statistics.median(spent)


def spent() -> float:
    """Return the processor time of this process and its browser in milliseconds."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return 1000 * sum(sum(process.cpu_times()[:2]) for process in tree)


def memory() -> float:
    """Return the proportional share of memory of this process and its browser in megabytes."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(process.memory_full_info().pss for process in tree) / 1e6


def hold(sites: list[str], count: int) -> None:
    """Open worlds, the sites in turn, each another task; print what they take while all are open.

    After that another page is asked of each site's last world: all of them are still in use.
    """
    began, held = memory(), list[Sites]()
    for number in range(count):
        site = sites[number % len(sites)]
        env = registry.make(f"sites/{site}:{TASKS[site]}")
        assert isinstance(env, Sites)
        env.reset(registry.tasks(env.spec.id).task(Split.TRAIN, number // len(sites)))
        held.append(env)
        if number + 1 in (len(sites), count // 4, count // 2, count):
            print(f"{number + 1} worlds: {memory():.0f} MB, before them {began:.0f}", flush=True)
    browser = sum(p.memory_full_info().pss for p in psutil.Process().children(recursive=True))
    print(f"of these in the browser: {browser / 1e6:.0f} MB")
    for env in held[-len(sites) :]:
        assert env.step(env.oracle()[0]).valid
    for env in held:
        env.close()


def snapshots(site: str, count: int) -> list[str]:
    """Return what snapshots of a site's tasks take, as `HEADS` names it."""
    rng, sizes, ways = random.Random(site), list[int](), {"state": 0, "page": 0, "replayed": 0}
    took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    names = [f"{site}-{level}" for level in ("easy", "medium", "hard")]
    names = [name for name in names if name in Sites.names()]
    keeper, other = Sites(names[0]), dict[str, Sites]()
    keeper.reset(
        registry.tasks(keeper.spec.id).task(Split.VALIDATION, 0)
    )  # keeps the browser running
    for number in range(count):
        name = names[number % len(names)]
        env, back = Sites(name), other.setdefault(name, Sites(name))
        task = registry.tasks(f"sites/{name}").task(Split.TRAIN, number)
        env.reset(task)
        plan = env.oracle()[:-1]
        for action in plan[: rng.randint(1, max(1, len(plan)))]:
            env.step(action)
        saved = env.snapshot()
        sizes.append(len(saved))
        KNOWN.forget()
        for later in (False, *[True] * AGAIN):
            begun, spent_before = time.perf_counter(), spent()
            back.restore(saved)
            took[later].append((1000 * (time.perf_counter() - begun), spent() - spent_before))
            assert back.elements() == env.elements(), name
        ways[back.way_back] += 1
        env.close()
    for env in (keeper, *other.values()):
        env.close()
    columns = [
        sorted(column) for later in (False, True) for column in zip(*took[later], strict=True)
    ]
    times = [f"{statistics.median(column):.0f}" for column in columns]
    return [f"{statistics.median(sizes):.0f}", str(max(sizes)), *times, *map(str, ways.values())]


def main() -> None:
    """Measure each application, or many worlds at once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sites", nargs="*")
    parser.add_argument("--worlds", type=int, default=0)
    parser.add_argument("--snapshots", type=int, default=0, help="tasks of each site")
    given = parser.parse_args()
    if given.snapshots:
        print(f"load {os.getloadavg()[0]:.1f}; {'site':6}" + "".join(f"{h:>10}" for h in HEADS))
        for site in given.sites or [*TASKS, "world"]:
            print(
                f"{'':11}{site:6}"
                + "".join(f"{one:>10}" for one in snapshots(site, given.snapshots)),
                flush=True,
            )
        return
    given.sites = given.sites or [*TASKS]
    if given.worlds:
        hold(given.sites, given.worlds)
    else:
        measure(given.sites)


def measure(sites: list[str]) -> None:
    """Print the medians of each application."""
    heads = ("reset", "with page", "(spent)", "page", "bytes", "restore")
    print("site  " + "".join(f"{head:>10}" for head in heads))
    for site in sites:
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
        env.reset(task)  # draws the world
        begun = spent()
        whole = median(lambda env=env, task=task: env.reset(task))
        of_reset = (spent() - begun) / (TRIES + 1)
        pages = []
        for action in env.oracle()[:-1]:
            begun = time.perf_counter()
            env.step(action)
            pages.append(1000 * (time.perf_counter() - begun))
        saved = env._saved_state()
        assert saved and env._return_to(task, saved, env._past)
        back = median(
            lambda env=env, task=task, saved=saved: env._return_to(task, saved, env._past)
        )
        found = (alone, whole, of_reset, statistics.median(pages), len(saved), back)
        print(f"{site:6}" + "".join(f"{value:10.1f}" for value in found))
        env.close()


if __name__ == "__main__":
    main()
