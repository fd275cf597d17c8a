"""Runs an evaluation plan: one cell after the other, with the training loop's rollout code.

Each cell is one `Rollout` over the run's store, so stored events are never recomputed: a resumed
evaluation returns finished episodes as they are, reruns episodes that infrastructure broke, and
continues interrupted ones after their last recorded event. A pause, a changed concurrency and an
exhausted budget rely on the same property: the rollout is stopped and, if work is left, restarted.

Concurrency never changes an episode's samples from models whose replies depend on prompt and
seed alone. A resident model computes in batches, and rounding depends on the rest of the batch:
equal scores are then likely, but not guaranteed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby

from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import TooManyFaults
from palaestra.core.graph import Call
from palaestra.core.model import Model
from palaestra.core.model_calls import check_held
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.task import Task
from palaestra.environments.registry import make, tasks
from palaestra.evaluation.running import desired_state
from palaestra.evaluation.running.desired_state import DesiredState
from palaestra.evaluation.running.evaluation_plan import Cell, Plan
from palaestra.evaluation.running.matrix import reply_tokens
from palaestra.evaluation.running.spending_budget import Meter, SpendingBudget
from palaestra.evaluation.statistics.costs import Spent, total
from palaestra.evaluation.statistics.player_results import has_success
from palaestra.rollout.environment_pool import AsyncEnvironmentFactory, EnvironmentPool
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Elsewhere, Job, Rollout
from palaestra.rollout.worker_pool import WorkerPool
from palaestra.runtime.concurrency import note, usual
from palaestra.runtime.machine import peak_memory_bytes
from palaestra.runtime.progress import Reporter, StageProgress
from palaestra.store.run_folder import RunFolder

Load = Callable[[str, Agent], Model]  # loads a model by name, for an agent
OnCell = Callable[[Cell, list[Episode]], None]

POLL_EVERY = 0.1  # seconds between reads of the desired state
SAVE_EVERY = 5.0  # seconds between saves of the time spent
CANCELLED = "it was cancelled from outside"


@dataclass(slots=True)
class Done:
    """The result of one call of `evaluate`."""

    stopped: str | None = None  # why it stopped early, as text; None: it did not
    seconds: float = 0.0  # working time of the whole run so far
    cell_seconds: dict[str, float] = field(default_factory=dict)  # working time by phase

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
    budget: SpendingBudget,
    on_cell: OnCell,
    workers: int = 1,
    elsewhere: Elsewhere | None = None,
) -> Done:
    """Run the rest of a plan, until it is finished, its budget is spent or it is cancelled.

    Args:
        plan: all cells; the run holds the finished part.
        run: the run, locked by this process.
        reporter: shows progress and messages.
        load: loads the models; each is closed after its cells.
        concurrency: concurrent episodes by model name; "" for all others. Without either, the
            usual concurrency of the cell's environment.
        budget: what the run may spend, including what earlier processes spent.
        on_cell: called once for each cell, in their order, with its finished episodes, so that
            the caller need not hold more than one cell in memory.
        workers: processes that host the environments; 0 hosts them in this one.
        elsewhere: makes the sessions if other processes run them, with environments there.
    """
    work = _Evaluation(plan, run, reporter, concurrency, budget, on_cell, elsewhere)
    return await work.run_all(load, 0 if elsewhere is not None else workers)


class _Evaluation:
    """One process's work on a plan."""

    def __init__(
        self,
        plan: Plan,
        run: RunFolder,
        reporter: Reporter,
        concurrency: Mapping[str, int],
        budget: SpendingBudget,
        on_cell: OnCell,
        elsewhere: Elsewhere | None,
    ) -> None:
        self.elsewhere = elsewhere
        self.plan, self.run, self.reporter, self.concurrency = plan, run, reporter, concurrency
        self.on_cell = on_cell
        totals = run.database.get("totals") or {}
        limited = budget != SpendingBudget()
        self.meter = Meter(
            run.database,
            plan.prices,
            budget,
            self._spent() if limited else Spent(),
            float(totals.get("seconds", 0.0)),
        )
        self.done = Done(cell_seconds=dict(totals.get("cells") or {}))
        self.desired = desired_state.read(run.path)
        if self.desired.cancelled:  # applied by the previous process
            self.desired = desired_state.change(run.path, cancelled=False)
        self.warned = False  # whether the advice on too high a concurrency was shown
        self._saved = 0.0

    async def run_all(self, load: Load, workers: int) -> Done:
        self._apply(self.desired)
        try:
            async with contextlib.AsyncExitStack() as held:
                make_env: AsyncEnvironmentFactory = _local
                if workers:
                    make_env = (await held.enter_async_context(WorkerPool(workers))).make
                pool = EnvironmentPool(make_env)
                held.push_async_callback(pool.close)
                for (_, name), group in groupby(self.plan.cells, lambda c: (c.model, c.agent)):
                    await self._run_group(list(group), make_agent(name), load, pool)
        finally:
            self._save()
        self.done.seconds = self.meter.seconds
        return self.done

    async def _run_group(
        self, cells: list[Cell], agent: Agent, load: Load, pool: EnvironmentPool
    ) -> None:
        """Run the cells of one agent and model."""
        models: dict[tuple[str, str], Model] = {}  # by role and name
        try:
            for cell in cells:
                jobs = jobs_of(self.plan, cell)
                episodes = None
                if self.done.stopped is None and not self._finished(jobs, cell):
                    named = {"agent": cell.model, **cell.roles}
                    for pair in named.items():
                        if pair not in models:
                            model = models[pair] = load(pair[1], agent)
                            check_held(model, cell.sampling)
                            if model.max_tokens is not None:  # else its server knows the limit
                                model.max_tokens = reply_tokens(agent.name)
                    playing = {role: models[role, name] for role, name in named.items()}
                    episodes = await self._run_cell(cell, jobs, agent, playing, pool)
                if episodes is None:  # finished earlier, or stopped early
                    episodes = self.run.database.episodes(cell.phase)
                self.on_cell(cell, episodes)
        finally:
            for model in models.values():
                await model.close()

    async def _run_cell(
        self,
        cell: Cell,
        jobs: list[Job],
        agent: Agent,
        models: dict[str, Model],
        pool: EnvironmentPool,
    ) -> list[Episode] | None:
        """Run a cell to its end, or until the evaluation has to stop (None)."""
        before = self.done.cell_seconds.get(cell.phase, 0.0)
        started = time.monotonic() - before
        name = "eval" if len(self.plan.cells) == 1 else cell.phase.removeprefix("eval/")
        with self.reporter.stage(name, len(jobs), "episodes") as shown:
            while self.done.stopped is None:
                self.done.stopped = CANCELLED if self.desired.cancelled else self.meter.over
                if self.done.stopped is not None:
                    break
                if self.desired.paused:
                    started += await self._pause()
                    continue
                counter = _Counter(shown, has_success(cell.environment))
                for outcome in self._ended(cell).values():
                    counter.count(outcome)
                rollout = Rollout(
                    agent=agent,
                    make_environment=pool.take,
                    keep=pool.keep,
                    models=models,
                    budget=cell.budget,
                    player_budget=cell.player_budget,
                    sampling=cell.sampling,
                    seed=cell.seed,
                    concurrency=self._concurrency(cell, len(jobs)),
                    store=self.meter,
                    finished=counter.add,
                    elsewhere=self.elsewhere,
                )
                episodes = await self._run_rollout(rollout, jobs, cell)
                self.done.cell_seconds[cell.phase] = time.monotonic() - started
                if episodes is not None:
                    return episodes
        return None

    async def _run_rollout(
        self, rollout: Rollout, jobs: list[Job], cell: Cell
    ) -> list[Episode] | None:
        """Return the episodes once all have ended; None if the desired state changed first."""
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
                watch.result()  # raise its error, if it failed
            return None
        try:
            return work.result()
        except TooManyFaults:  # the finished episodes are reported all the same
            episodes = self.run.database.episodes(cell.phase)
            broken = [e.outcome for e in episodes if not e.outcome.scored]
            self.reporter.say(f"most episodes broke; the last: {broken[-1].detail}")
            return episodes

    # ── the desired state ────────────────────────────────────────────────────

    async def _until_stopped(self) -> None:
        """Wait until the budget is spent or the desired state changes."""
        while self.meter.over is None:
            await self.meter.wait(POLL_EVERY)
            if self.meter.seconds - self._saved > SAVE_EVERY:
                self._save()
            desired = desired_state.read(self.run.path)
            if desired != self.desired:
                self._apply(desired)
                return

    async def _pause(self) -> float:
        """Wait for the end of a pause; return its length in seconds."""
        command = f"palaestra ctl {self.run.path} resume"
        self.reporter.say(f"paused; resume with: {command}")
        begun = time.monotonic()
        while self.desired.paused and not self.desired.cancelled:
            await asyncio.sleep(POLL_EVERY)
            desired = desired_state.read(self.run.path)
            if desired != self.desired:
                self._apply(desired)
        paused = time.monotonic() - begun
        self.meter.exclude(paused)
        return paused

    def _apply(self, desired: DesiredState) -> None:
        if desired.concurrency not in (None, self.desired.concurrency):
            self.reporter.say(f"episodes at once: {desired.concurrency}")
        self.desired = desired
        self.run.database.put(desired_state.APPLIED, asdict(desired))

    # ── the stored state ─────────────────────────────────────────────────────

    def _ended(self, cell: Cell) -> dict[Key, Outcome]:
        """Return the outcomes of a cell's finished episodes that are not rerun."""
        found = self.run.database.summaries(cell.phase)
        return {
            s.key: s.outcome
            for s in found
            if s.key.phase == cell.phase and s.outcome.owner is not Owner.INFRASTRUCTURE
        }

    def _finished(self, jobs: list[Job], cell: Cell) -> bool:
        ended = self._ended(cell)
        return all(job.key in ended and ended[job.key].scored for job in jobs)

    def _concurrency(self, cell: Cell, jobs: int) -> int:
        """Return the concurrency of a cell; show advice once if it is too high."""
        given = self.concurrency.get(cell.model) or self.concurrency.get("")
        found = self.desired.concurrency or given or usual(cell.environment, cell.agent)
        advice = note(cell.environment, min(found, jobs), "--concurrency ", cell.agent)
        if advice is not None and not self.warned:
            self.warned = True
            self.reporter.say(advice)
        return found

    def _spent(self) -> Spent:
        """Return the cost of all recorded calls, those of unfinished episodes included."""
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
    """Return the jobs of a cell in the plan's shard."""
    known = tasks(cell.environment)
    chosen: list[tuple[int, Task]] = [(n, known.task(cell.split, n)) for n in plan.numbers(cell)]
    members = range(cell.repeats)
    return [Job(Key(cell.phase, n, m), task) for n, task in chosen for m in members]


async def _local(environment: str) -> AsyncEnvironment:
    return LocalEnvironment(make(environment))


class _Counter:
    """The progress display of a cell: episodes ended, and their success rate if they have one."""

    def __init__(self, shown: StageProgress, has_success: bool) -> None:
        self._shown, self._has_success = shown, has_success
        self._done = self._scored = self._solved = 0

    def count(self, outcome: Outcome) -> None:
        """Count an ended episode without showing it."""
        self._done += 1
        self._scored += outcome.scored
        self._solved += outcome.solved

    def add(self, episode: Episode) -> None:
        self.count(episode.outcome)
        figures = {}
        if self._scored and self._has_success:
            figures["success"] = f"{100 * self._solved / self._scored:.0f} %"
        self._shown.show(self._done, figures)
