"""The evaluation of a plan: its cells lived one after the other by the training loop's own code.

Each cell is one `Rollout` over the run's store, so what is stored is never lived again: a
resumed evaluation returns finished episodes as they are, lives again what infrastructure
broke, and goes on with interrupted ones after their last recorded event. Pausing, another
concurrency and the end of a budget rest on the same promise: the rollout is stopped where it
stands and, if there is more to do, begun anew.

Which episodes run at once never changes what an episode samples from models whose replies
depend on prompt and seed alone. A resident model computes in batches, and rounding there
depends on the neighbours: with it, equal scores are to be expected but not guaranteed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby

from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import World
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import TooManyFaults
from palaestra.core.graph import Call
from palaestra.core.model import Model, Sampling
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.task import Task
from palaestra.environments.registry import make, tasks
from palaestra.evaluation.costs import Spent, total
from palaestra.evaluation.plan import Cell, Plan
from palaestra.experiment import control, crowd
from palaestra.experiment.control import Wish
from palaestra.experiment.limits import Allowance, Meter
from palaestra.experiment.machine import peak_memory_bytes
from palaestra.experiment.progress import Reporter, StageProgress
from palaestra.rollout.kept import KeptWorlds
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.workers import WorkerPool
from palaestra.rollout.worlds import LocalWorld
from palaestra.store.run import RunFolder

Load = Callable[[str, Agent], Model]  # a model by its name, for an agent
Told = Callable[[Cell, list[Episode]], None]
Worlds = Callable[[str], Awaitable[World]]  # a fresh world by its environment

LOOK_EVERY = 0.1  # seconds between looks at what is wished
SAVE_EVERY = 5.0  # seconds between notes of the time spent
CANCELLED = "it was cancelled from outside"


@dataclass(slots=True)
class Done:
    """What a call of `evaluate` has come to."""

    stopped: str | None = None  # why before the end, in words
    seconds: float = 0.0  # of work on the whole run so far
    cell_seconds: dict[str, float] = field(default_factory=dict)  # of work, by phase

    @property
    def cancelled(self) -> bool:
        return self.stopped == CANCELLED


async def evaluate(
    plan: Plan,
    run: RunFolder,
    reporter: Reporter,
    *,
    load: Load,
    concurrency: Mapping[str, int],
    allowance: Allowance,
    told: Told,
    workers: int = 1,
) -> Done:
    """Live what is left of a plan, until it is done, its allowance is spent or it is cancelled.

    Args:
        plan: what is to be done; the run holds what of it has been.
        run: the run, locked by this process.
        reporter: where to say what happens.
        load: makes the models; each is closed when its cells are done.
        concurrency: episodes at once with a model, by its name; "" for any other one. Where neither
            is there, it is what is usual in the cell's world.
        allowance: what the run may spend, what earlier processes spent included.
        told: called once for each cell, in their order, with its finished episodes: a reader
            need not hold more than one cell in memory.
        workers: processes that host the worlds; 0 hosts them in this one.
    """
    return await _Evaluation(plan, run, reporter, concurrency, allowance, told).live(load, workers)


class _Evaluation:
    """One process's work on a plan."""

    def __init__(
        self,
        plan: Plan,
        run: RunFolder,
        reporter: Reporter,
        concurrency: Mapping[str, int],
        allowance: Allowance,
        told: Told,
    ) -> None:
        self.plan, self.run, self.reporter, self.concurrency = plan, run, reporter, concurrency
        self.told = told
        totals = run.database.get("totals") or {}
        counted = allowance != Allowance()
        self.meter = Meter(
            run.database,
            plan.prices,
            allowance,
            self._spent() if counted else Spent(),
            float(totals.get("seconds", 0.0)),
        )
        self.done = Done(cell_seconds=dict(totals.get("cells") or {}))
        self.wish = control.read(run.path)
        if self.wish.cancelled:  # obeyed by the process before
            self.wish = control.change(run.path, cancelled=False)
        self.crowded = False  # whether it was said that many episodes at once take long to start
        self._saved = 0.0

    async def live(self, load: Load, workers: int) -> Done:
        self._obey(self.wish)
        try:
            async with contextlib.AsyncExitStack() as held:
                worlds: Worlds = _local
                if workers:
                    worlds = (await held.enter_async_context(WorkerPool(workers))).world
                kept = KeptWorlds(worlds)
                held.push_async_callback(kept.close)
                for (_, name), group in groupby(self.plan.cells, lambda c: (c.model, c.agent)):
                    await self._live_group(list(group), make_agent(name), load, kept)
        finally:
            self._save()
        self.done.seconds = self.meter.seconds
        return self.done

    async def _live_group(
        self, cells: list[Cell], agent: Agent, load: Load, worlds: KeptWorlds
    ) -> None:
        """The cells of one agent and model."""
        models: dict[tuple[str, str], Model] = {}  # by role and name
        try:
            for cell in cells:
                jobs = jobs_of(self.plan, cell)
                episodes = None
                if self.done.stopped is None and not self._finished(jobs, cell):
                    named = {"agent": cell.model, **cell.roles}
                    for pair in named.items():
                        if pair not in models:
                            models[pair] = load(pair[1], agent)
                    playing = {role: models[role, name] for role, name in named.items()}
                    episodes = await self._live_cell(cell, jobs, agent, playing, worlds)
                if episodes is None:  # finished before, or cut short
                    episodes = self.run.database.episodes(cell.phase)
                self.told(cell, episodes)
        finally:
            for model in models.values():
                await model.close()

    async def _live_cell(
        self,
        cell: Cell,
        jobs: list[Job],
        agent: Agent,
        models: dict[str, Model],
        worlds: KeptWorlds,
    ) -> list[Episode] | None:
        """Live a cell until the work is to stop (None) or to its end."""
        before = self.done.cell_seconds.get(cell.phase, 0.0)
        started = time.monotonic() - before
        name = "eval" if len(self.plan.cells) == 1 else cell.phase.removeprefix("eval/")
        with self.reporter.stage(name, len(jobs), "episodes") as shown:
            while self.done.stopped is None:
                self.done.stopped = CANCELLED if self.wish.cancelled else self.meter.over
                if self.done.stopped is not None:
                    break
                if self.wish.paused:
                    started += await self._pause()
                    continue
                counter = _Counter(shown)
                for outcome in self._ended(cell).values():
                    counter.before(outcome)
                rollout = Rollout(
                    agent=agent,
                    worlds=worlds.world,
                    keep=worlds.keep,
                    models=models,
                    budget=Budget(
                        cell.turns, cell.tokens, cell.total_tokens, cell.seconds, tried=cell.tried
                    ),
                    sampling=Sampling(cell.temperature, cell.max_tokens),
                    seed=cell.seed,
                    concurrency=self._at_once(cell, len(jobs)),
                    store=self.meter,
                    finished=counter.add,
                )
                lived = await self._run(rollout, jobs, cell)
                self.done.cell_seconds[cell.phase] = time.monotonic() - started
                if lived is not None:
                    return lived
        return None

    async def _run(self, rollout: Rollout, jobs: list[Job], cell: Cell) -> list[Episode] | None:
        """The episodes once all have come to their ends; None: something else is wished."""
        work = asyncio.ensure_future(rollout.run(jobs))
        watch = asyncio.ensure_future(self._until_stopped())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = work.done()
            work.cancel()
            watch.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)
        if not ended:
            if not watch.cancelled():
                watch.result()  # raises what kept it from looking
            return None
        try:
            return work.result()
        except TooManyFaults:  # what was lived is reported all the same
            lived = self.run.database.episodes(cell.phase)
            broken = [e.outcome for e in lived if not e.outcome.scored]
            self.reporter.say(f"most episodes broke; the last: {broken[-1].detail}")
            return lived

    # ── what others wish ─────────────────────────────────────────────────────

    async def _until_stopped(self) -> None:
        """Wait until the rollout should not go on as it does."""
        while self.meter.over is None:
            await self.meter.wait(LOOK_EVERY)
            if self.meter.seconds - self._saved > SAVE_EVERY:
                self._save()
            wish = control.read(self.run.path)
            if wish != self.wish:
                self._obey(wish)
                return

    async def _pause(self) -> float:
        """Wait for the end of a pause; returns how long it took."""
        command = f"palaestra ctl {self.run.path} resume"
        self.reporter.say(f"paused; go on with: {command}")
        begun = time.monotonic()
        while self.wish.paused and not self.wish.cancelled:
            await asyncio.sleep(LOOK_EVERY)
            wish = control.read(self.run.path)
            if wish != self.wish:
                self._obey(wish)
        rested = time.monotonic() - begun
        self.meter.rest(rested)
        return rested

    def _obey(self, wish: Wish) -> None:
        if wish.concurrency not in (None, self.wish.concurrency):
            self.reporter.say(f"episodes at once: {wish.concurrency}")
        self.wish = wish
        self.run.database.put(control.OBEYED, asdict(wish))

    # ── what is there ────────────────────────────────────────────────────────

    def _ended(self, cell: Cell) -> dict[Key, Outcome]:
        """The outcomes of the finished episodes of a cell that are not lived again."""
        found = self.run.database.summaries(cell.phase)
        return {
            s.key: s.outcome
            for s in found
            if s.key.phase == cell.phase and s.outcome.owner is not Owner.INFRASTRUCTURE
        }

    def _finished(self, jobs: list[Job], cell: Cell) -> bool:
        ended = self._ended(cell)
        return all(job.key in ended and ended[job.key].scored for job in jobs)

    def _at_once(self, cell: Cell, jobs: int) -> int:
        """Episodes at once; where that is too many, it is said once."""
        said = self.concurrency.get(cell.model) or self.concurrency.get("")
        found = self.wish.concurrency or said or crowd.usual(cell.environment, cell.agent)
        note = crowd.note(cell.environment, min(found, jobs), "--concurrency ", cell.agent)
        if note is not None and not self.crowded:
            self.crowded = True
            self.reporter.say(note)
        return found

    def _spent(self) -> Spent:
        """What all recorded calls have cost, those of unfinished episodes included."""
        spent = Spent()
        for cell in self.plan.cells:
            for job in jobs_of(self.plan, cell):
                past = self.run.database.past(job.key)
                spent += total((e for e in past if isinstance(e, Call)), self.plan.prices)
        return spent

    def _save(self) -> None:
        self._saved = self.meter.seconds
        totals = {
            "seconds": self.meter.seconds,
            "peak_memory_bytes": peak_memory_bytes(),
            "cells": self.done.cell_seconds,
        }
        self.run.database.put("totals", totals)


def jobs_of(plan: Plan, cell: Cell) -> list[Job]:
    """The episodes of a cell that a plan's own part of it asks for."""
    known = tasks(cell.environment)
    drawn: list[tuple[int, Task]] = [(n, known.task(cell.split, n)) for n in plan.numbers(cell)]
    members = range(cell.repeats)
    return [Job(Key(cell.phase, n, m), task) for n, task in drawn for m in members]


async def _local(environment: str) -> World:
    return LocalWorld(make(environment))


class _Counter:
    """Shows how many episodes have ended, and how many of the scored ones in success."""

    def __init__(self, shown: StageProgress) -> None:
        self._shown = shown
        self._done = self._scored = self._solved = 0

    def before(self, outcome: Outcome) -> None:
        """Count an episode that had ended before."""
        self._done += 1
        self._scored += outcome.scored
        self._solved += outcome.solved

    def add(self, episode: Episode) -> None:
        self.before(episode.outcome)
        rate = {"success": f"{100 * self._solved / self._scored:.0f} %"} if self._scored else {}
        self._shown.show(self._done, rate)
