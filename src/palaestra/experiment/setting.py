"""What the stages of a run share: recipe, store, agent, tasks, worlds and the policy."""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rich.markup import escape

from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import World
from palaestra.core.episode import Episode
from palaestra.core.errors import TooManyFaults
from palaestra.core.model import Model, Sampling
from palaestra.core.task import TaskSet
from palaestra.environments.registry import make, tasks
from palaestra.experiment.machine import peak_memory_bytes
from palaestra.experiment.method import chosen, critic_of
from palaestra.experiment.policy import selection
from palaestra.experiment.progress import Reporter
from palaestra.experiment.recipe import Recipe
from palaestra.learning.algorithms import Method
from palaestra.learning.component import Need
from palaestra.learning.critics.separate import SeparateCritic
from palaestra.learning.critics.value import Critic
from palaestra.learning.learner import Learner
from palaestra.learning.masters import Optimisation
from palaestra.learning.memory import MemoryBudget
from palaestra.models.resident import ResidentModel
from palaestra.rollout.kept import KeptWorlds
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.workers import WorkerPool
from palaestra.rollout.worlds import LocalWorld
from palaestra.store import checkpoint
from palaestra.store.run import RunFolder

CRITIC = "critic_"  # of a separate critic's parts in checkpoints
TRIES = 5  # of the same episodes, where infrastructure breaks some of them each time


class Setting:
    """One run in progress; the stages in `stages.py` are functions of it."""

    def __init__(self, recipe: Recipe, run: RunFolder, reporter: Reporter) -> None:
        self.recipe, self.run, self.reporter = recipe, run, reporter
        self.store = run.database
        self.agent: Agent = make_agent(recipe.agent.chosen)
        self.tasks: TaskSet = tasks(recipe.environment.id)
        self.turns = recipe.environment.turns or typical_turns(recipe.environment.id)
        self.method = Method(chosen(recipe.rl))
        self.pool = (
            WorkerPool(recipe.environment.workers, recipe.environment.timeout)
            if recipe.environment.workers
            else None
        )
        self.worlds = KeptWorlds(self._world)
        self.actor_bytes = 0  # peak memory of a process that acts for this one
        self.policy: ResidentModel  # set once the weights are loaded
        self._counted = time.monotonic()

    # ── rolling out ──────────────────────────────────────────────────────────

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """With workers that run, and no world left behind."""
        async with AsyncExitStack() as held:
            if self.pool is not None:
                await held.enter_async_context(self.pool)
            held.push_async_callback(self.worlds.close)
            yield

    async def _world(self, environment: str) -> World:
        if self.pool is None:
            return LocalWorld(make(environment))
        return await self.pool.world(environment)

    def rollout(
        self,
        models: Mapping[str, Model],
        turns: int,
        finished: Callable[[Episode], None],
        *,
        greedy: bool = False,
        needed: int | None = None,
    ) -> Rollout:
        part = self.recipe.agent
        return Rollout(
            agent=self.agent,
            worlds=self.worlds.world,
            keep=self.worlds.keep,
            models=models,
            budget=Budget(turns=turns, unparsed=self.recipe.environment.unparsed or None),
            sampling=Sampling(
                0.0 if greedy else part.temperature, part.max_tokens, tuple(part.stop)
            ),
            seed=self.recipe.seed,
            concurrency=self.recipe.concurrency,
            store=self.store,
            finished=finished,
            needed=needed,
        )

    async def live(self, rollout: Rollout, jobs: Sequence[Job]) -> list[Episode]:
        """Live the jobs; in deterministic mode, either all of them anew or none.

        There, what infrastructure broke is lived again before the run goes on: without it, the
        weights would be others.

        Raises:
            TooManyFaults: most episodes broke through no fault of the agent; in deterministic
                mode, infrastructure broke some of them each time.
        """
        if not self.recipe.deterministic:
            return await rollout.run(jobs)
        remembered = copy.deepcopy(vars(self.agent))
        for left in reversed(range(TRIES)):
            self.policy.engine.clear()  # no rounding depends on what was lived before
            whole = [self.store.episode(job.key) for job in jobs]
            if any(episode is None or episode.outcome.retriable for episode in whole):
                for job in jobs:
                    self.store.forget(job.key)
            try:
                lived = await rollout.run(jobs)
            except TooManyFaults:
                lived = [e for job in jobs if (e := self.store.episode(job.key)) is not None]
                if not any(episode.outcome.retriable for episode in lived):
                    raise
            broken = [episode.outcome for episode in lived if episode.outcome.retriable]
            if not broken:
                return lived
            told = f"{len(broken)} of {len(jobs)} episodes of {jobs[0].key.phase}"
            why = f"{broken[-1]}: {broken[-1].detail}"
            if left:
                vars(self.agent).update(copy.deepcopy(remembered))
                self.reporter.say(f"infrastructure broke {told}, so all start over: {escape(why)}")
        raise TooManyFaults(
            f"Infrastructure broke {told} at the last of {TRIES} tries, the last one with {why}. "
            "deterministic = true needs all of them; mend the cause (mostly too little memory), "
            "and resume the run."
        )

    def lacks(self, phase: str, count: int) -> bool:
        """Whether a phase has fewer than `count` episodes, or infrastructure broke some."""
        found = [one for one in self.store.summaries(phase) if one.key.phase == phase]
        return len(found) < count or any(one.outcome.retriable for one in found)

    # ── learning ─────────────────────────────────────────────────────────────

    def learner(self, learning_rate: float, *, for_rl: bool = False) -> Learner:
        """The policy's learner; for reinforcement with all that the method needs."""
        part, critic = self.recipe.training, None
        asked = critic_of(self.recipe.rl, self.method) if for_rl else None
        if asked is not None and asked.kind == "head":
            critic = Critic(asked.learning_rate, asked.coefficient or 0.5, shared=asked.shared)
        return Learner(
            self.policy,
            selection(self.policy, self.recipe),
            Optimisation(learning_rate, part.memory_bytes, part.clip_norm),
            temperature=self.recipe.agent.temperature,
            critic=critic,
            keep_reference=for_rl and self._keeps_reference(),
        )

    def check_memory(self) -> None:
        """Raises InputError if training does not fit into memory however small its passes."""
        chosen = selection(self.policy, self.recipe)
        MemoryBudget(
            self.policy.network,
            chosen.parameters,
            chosen.frozen_layers,
            self.recipe.training.memory_bytes,
            reference=self._keeps_reference(),
        )

    def _keeps_reference(self) -> bool:
        return bool(self.recipe.rl.steps) and Need.REFERENCE in self.method.needs

    def critic(self) -> SeparateCritic | None:
        """The critic with a network of its own, where the recipe asks for one."""
        part, asked = self.recipe.training, critic_of(self.recipe.rl, self.method)
        if asked is None or asked.kind != "separate":
            return None
        optimisation = Optimisation(asked.learning_rate, part.memory_bytes, part.clip_norm)
        return SeparateCritic(self.policy.network, optimisation)

    def save(
        self,
        name: str,
        learner: Learner,
        state: Mapping[str, Any],
        critic: SeparateCritic | None = None,
    ) -> None:
        """A checkpoint; of those of RL, only the latest two are kept."""
        whole = {**state, "version": self.policy.version}
        tensors = learner.state()
        if critic is not None:
            tensors |= {CRITIC + part: held for part, held in critic.state().items()}
        self.store.sync()  # a checkpoint never knows more than the record, whatever happens
        checkpoint.save(self.run.checkpoints, name, tensors, whole)
        older = sorted(n for n in checkpoint.names(self.run.checkpoints) if n.startswith("rl-"))
        for old in older[:-2]:
            checkpoint.remove(self.run.checkpoints, old)

    def resume(
        self, learner: Learner, prefix: str, critic: SeparateCritic | None = None
    ) -> dict[str, Any] | None:
        """Put the latest sound checkpoint of that kind into learner, critic and policy."""
        for name in sorted(checkpoint.names(self.run.checkpoints), reverse=True):
            if not name.startswith(prefix):
                continue
            try:
                found = checkpoint.load(self.run.checkpoints, name)
            except checkpoint.CorruptCheckpoint as error:
                self.reporter.say(f"{error} An earlier one is used.")
                continue
            learner.restore(found.tensors)
            if critic is not None:
                own = found.tensors.items()
                critic.restore({p[len(CRITIC) :]: t for p, t in own if p.startswith(CRITIC)})
            self.policy.engine.clear()
            self.policy.version = found.state["version"]
            return dict(found.state)
        return None

    # ── accounts ─────────────────────────────────────────────────────────────

    def stages_done(self) -> list[dict[str, Any]]:
        return list(self.store.get("stages") or [])

    def is_done(self, stage: str) -> bool:
        return any(row["name"] == stage for row in self.stages_done())

    def count_time(self) -> None:
        """Add the time since the last count to the run's total, which survives a crash."""
        totals = dict(self.store.get("totals") or {"seconds": 0.0, "peak_memory_bytes": 0})
        now = time.monotonic()
        totals["seconds"] += now - self._counted
        self._counted = now
        workers = self.pool.max_rss_bytes() if self.pool is not None else 0
        totals["peak_memory_bytes"] = max(
            totals["peak_memory_bytes"], peak_memory_bytes() + workers + self.actor_bytes
        )
        self.store.put("totals", totals)

    def finish_stage(
        self, name: str, seconds: float, *, sampled: int, prompt: int, trained: int
    ) -> None:
        """Note what a stage has cost; of one that was taken up again, in all."""
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
        place = known.index(name) if name in known else len(known)
        self.store.put("stages", [*done[:place], row, *done[place + 1 :]])
        self.count_time()


def typical_turns(environment: str) -> int:
    """How many actions an episode of that environment is worth."""
    world = make(environment)
    try:
        return world.typical_turns
    finally:
        world.close()
