"""MiniWoB++ in a real browser: episodes a second on two cores, processor time, memory.

An episode is a reset (the page is loaded anew), its element tree, the reference solution's real
clicks and keys, the tree after each, and the reward.

    python benchmarks/web.py [--episodes 100] [--together 1 6] [--contexts 64] [--peer] [--json]

`--peer` runs BrowserGym's `click-test` beside ours, with the same browser. It starts a browser for
each episode, observes the DOM and a picture besides the tree, and sleeps after each step.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import psutil
from measuring import Peer, PeerUnavailable, Result, run

from palaestra.browser.installation import browser_program
from palaestra.browser.shared_browser import new_session
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.miniwob import pages
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
RATE, MEMORY, SAVING = 60.0, 1.3e9, 50.0  # episodes a second, bytes, times


def seconds() -> float:
    """The processor time of this process, those that it started, and theirs that ended."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in tree)


def episodes(page: str, count: int) -> tuple[float, float, int]:
    """Run episodes of one page; return seconds, processor seconds, and how many were solved."""
    world, tasks = registry.make(f"miniwob/{page}"), registry.tasks(f"miniwob/{page}")
    world.reset(tasks.task(Split.TRAIN, 0))  # starts the browser
    began, spent, solved = time.perf_counter(), seconds(), 0
    for index in range(count):
        world.reset(tasks.task(Split.TRAIN, index))
        for action in world.oracle():
            last = world.step(action)
        solved += last.success
    found = time.perf_counter() - began, seconds() - spent, solved
    world.close()
    return found


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


def beside_browsergym(count: int) -> Result:
    """Compare the processor time of an episode of click-test with BrowserGym's."""
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
            asked = {"task": "browsergym/miniwob.click-test", "episodes": max(3, count // 10)}
            theirs = peer.ask(asked)
    if theirs["solved"] < 1:
        raise PeerUnavailable(f"BrowserGym solved {theirs['solved']:.0%} of its episodes")
    took, spent, _ = episodes("click-test", count)
    ratio = theirs["processor_seconds"] * count / spent
    return Result(
        name="processor time of an episode of click-test, BrowserGym's over ours",
        ratio=ratio, goal=SAVING, low=ratio, high=ratio,
        figures={
            "ours_processor_milliseconds": 1e3 * spent / count,
            "theirs_processor_milliseconds": 1e3 * theirs["processor_seconds"],
            "ours_milliseconds": 1e3 * took / count,
            "theirs_milliseconds": 1e3 * theirs["seconds"],
        },
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
        results.append(beside_browsergym(chosen.episodes))
    return results


if __name__ == "__main__":
    run(__doc__, measure, options)
