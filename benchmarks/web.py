"""MiniWoB++ in a real browser: episodes a second on two cores, processor time, memory.

An episode is a reset, its element tree, the reference solution's real clicks and keys, the tree
after each, and the reward. Most pages begin a task in their document; some are loaded again.

    python benchmarks/web.py [--episodes 100] [--together 1 6] [--contexts 64] [--peer] [--json]

`--peer` runs the same pages in BrowserGym, with the same browser. Its reset ends two browsers (the
page's and the chat's) and starts two. Each of its observations has the tree, the DOM, a picture
and marks, so ours are measured twice: with the tree alone and with all of these. The processor time
of both is that of the episodes, resets included, in all processes: the browsers', too.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import psutil
from measuring import Peer, PeerUnavailable, Result, run

from palaestra.browser.installation import browser_program
from palaestra.browser.shared_browser import new_session
from palaestra.core.environment import AsyncEnvironment, Environment
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.miniwob import pages
from palaestra.environments.shared.browser_page import BrowserPage
from palaestra.environments.wrappers.wrapper import Wrapper
from palaestra.rollout.worker_pool import WorkerPool

PAGES = (
    "click-button",
    "click-checkboxes",
    "click-option",
    "click-tab",
    "click-test",
    "enter-text",
)
REQUIREMENTS = ("browsergym-miniwob==0.14.3", "playwright==1.44.0", "psutil==7.2.2")
PLAYWRIGHT = "chromium-1117/chrome-linux/chrome"  # where playwright 1.44 looks for its browser
RATE, MEMORY = 60.0, 1.3e9  # episodes a second, bytes
SAVING, SAVING_OF_ALL = 50.0, 10.0  # times less processor time: by tree, with all observations
ALL = "?observation=tree+picture+marks"  # and the DOM


def seconds() -> float:
    """The processor time of this process, those that it started, and theirs that ended."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in tree)


def episodes(page: str, count: int, with_all: bool) -> tuple[float, float, float]:
    """Run episodes of one page.

    Args:
        page: of MiniWoB++.
        count: episodes.
        with_all: whether the DOM, a picture and marks are observed, too.

    Returns:
        seconds and processor seconds of an episode, and the share that was solved.
    """
    world = registry.make(f"miniwob/{page}{ALL if with_all else ''}")
    tasks, solved = registry.tasks(f"miniwob/{page}"), 0
    world.reset(tasks.task(Split.TRAIN, 0))  # starts the browser
    began, spent = time.perf_counter(), seconds()
    for index in range(count):
        world.reset(tasks.task(Split.TRAIN, index))
        if with_all:
            observe_dom(world)
        for action in world.oracle():
            last = world.step(action)
            if with_all:
                observe_dom(world)
        solved += last.success
    found = (time.perf_counter() - began) / count, (seconds() - spent) / count, solved / count
    world.close()
    return found


def observe_dom(world: Environment) -> dict[str, Any]:
    """Return the DOM of a world's page, asked for as BrowserGym does."""
    while isinstance(world, Wrapper):
        world = world.inner
    assert isinstance(world, BrowserPage)
    return world._here().tab.call(
        "DOMSnapshot.captureSnapshot",
        computedStyles=[], includeDOMRects=True, includePaintOrder=True,
    )  # fmt: skip


async def run_episodes(world: AsyncEnvironment, page: str, count: int, first: int = 0) -> int:
    """Run episodes of one page in a worker's environment; return how many were solved."""
    tasks, solved = registry.tasks(f"miniwob/{page}"), 0
    for index in range(first, first + count):
        await world.reset(tasks.task(Split.TRAIN, index))
        for action in await world.oracle():
            last, _ = await world.step(action)
        solved += last.success
    return solved


async def in_workers(count: int, workers: int, together: int) -> tuple[float, float, int]:
    """Run episodes of all pages in each worker.

    Args:
        count: episodes of each page in each worker.
        workers: processes, each with a browser.
        together: worlds of a worker that are used at the same time.

    Returns:
        seconds, processor seconds, and how many episodes were solved.
    """
    async with WorkerPool(workers) as pool:
        # To the least loaded worker each time, so each has all pages.
        gates = [asyncio.Semaphore(together) for _ in range(workers)]
        worlds = [
            (page, await pool.make(f"miniwob/{page}"), gate) for page in PAGES for gate in gates
        ]

        async def run_all(page: str, world: AsyncEnvironment, gate: asyncio.Semaphore) -> int:
            async with gate:
                return await run_episodes(world, page, count, first=1)

        for page, world, _ in worlds:  # starts the browsers, loads the pages
            await run_episodes(world, page, 1)
        began, spent = time.perf_counter(), seconds()
        solved = await asyncio.gather(*(run_all(*one) for one in worlds))
        return time.perf_counter() - began, seconds() - spent, sum(solved)


def throughput(count: int, together: int, workers: int = 2) -> Result:
    """Measure two workers, each with a browser, whose worlds are used at the same time."""
    took, spent, solved = asyncio.run(in_workers(count, workers, together))
    run_in_all = workers * count * len(PAGES)
    rate = run_in_all / took
    return Result(
        name=f"episodes of MiniWoB++ a second, {workers} workers, {together} worlds of each "
        f"at once, against {RATE:g}",
        ratio=rate / RATE,
        goal=1.0,
        low=rate / RATE,
        high=rate / RATE,
        figures={
            "episodes_per_second": rate,
            "processor_milliseconds_per_episode": 1e3 * spent / run_in_all,
            "share_solved": solved / run_in_all,
        },
    )


def memory(contexts: int) -> Result:
    """Measure the proportional share of memory of one browser with that many worlds."""
    sessions = [new_session(pages.SIZE, frames_on_demand=True) for _ in range(contexts)]
    for seed, session in enumerate(sessions):
        session.begin({pages.HOST: pages.site()}, pages.address("click-button"), seed)
    tree = psutil.Process().children(recursive=True)
    used = sum(process.memory_full_info().pss for process in tree)
    for session in sessions:
        session.close()
    ratio = MEMORY / used
    return Result(
        name=f"memory of {contexts} contexts, {MEMORY / 1e9:g} GB against it",
        ratio=ratio, goal=1.0, low=ratio, high=ratio, figures={"megabytes": used / 1e6},
    )  # fmt: skip


def beside_browsergym(count: int) -> list[Result]:
    """Compare the processor time of episodes with BrowserGym's."""
    theirs: dict[str, dict[str, float]] = {}
    ours: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, PLAYWRIGHT)
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec {browser_program()} "$@"\n')
        program.chmod(0o755)
        variables = {
            "PLAYWRIGHT_BROWSERS_PATH": folder,
            "MINIWOB_URL": f"file://{pages.FOLDER}/miniwob/",
        }
        script = "benchmarks/peers/browsergym_miniwob.py"
        with Peer("browsergym", REQUIREMENTS, script, environment=variables) as peer:
            for page in PAGES:
                task = f"browsergym/miniwob.{page}"
                theirs[page] = peer.ask({"task": task, "episodes": max(3, count // 10)})
                ours[page] = [episodes(page, count, with_all) for with_all in (False, True)]
    unsolved = [page for page in PAGES if theirs[page]["solved"] < 1]
    if unsolved:
        raise PeerUnavailable(f"BrowserGym did not solve all episodes of {', '.join(unsolved)}")
    return [
        _saving(chosen, theirs, ours, with_all)
        for chosen in (("click-test",), PAGES)
        for with_all in (False, True)
    ]


def _saving(
    chosen: Sequence[str],
    theirs: Mapping[str, Mapping[str, float]],
    ours: Mapping[str, Sequence[tuple[float, float, float]]],
    with_all: bool,
) -> Result:
    """Return how many times less processor time our episodes of the chosen pages take."""
    found = [ours[page][with_all] for page in chosen]
    took, spent, solved = (mean(values) for values in zip(*found, strict=True))
    peers = [theirs[page] for page in chosen]
    ratio = mean(one["processor_seconds"] for one in peers) / spent
    what = "tree, DOM, picture and marks" if with_all else "the tree"
    figures = {
        "ours_processor_milliseconds": 1e3 * spent,
        "theirs_processor_milliseconds": 1e3 * mean(one["processor_seconds"] for one in peers),
        "theirs_in_resets": 1e3 * mean(one["reset_processor_seconds"] for one in peers),
        "ours_milliseconds": 1e3 * took,
        "theirs_milliseconds": 1e3 * mean(one["seconds"] for one in peers),
        "ours_share_solved": solved,
    }
    if len(chosen) > 1:
        for page in chosen:
            figures[f"times_{page}"] = theirs[page]["processor_seconds"] / ours[page][with_all][1]
    return Result(
        name=f"processor time of an episode of {' '.join(chosen)}: BrowserGym's over ours, "
        f"which observe {what}",
        ratio=ratio, goal=SAVING_OF_ALL if with_all else SAVING, low=ratio, high=ratio,
        figures=figures,
    )  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episodes", type=int, default=100, help="of each page (100)")
    parser.add_argument(
        "--together", type=int, nargs="+", default=[6], help="worlds of a worker in use at once (6)"
    )
    parser.add_argument("--contexts", type=int, default=64)
    parser.add_argument(
        "--peer", action="store_true", help="BrowserGym, in an environment of its own"
    )


def measure(chosen: argparse.Namespace) -> list[Result]:
    results = [throughput(chosen.episodes, together) for together in chosen.together]
    results.append(memory(chosen.contexts))
    if chosen.peer:
        results += beside_browsergym(chosen.episodes)
    return results


if __name__ == "__main__":
    run(__doc__, measure, options)
