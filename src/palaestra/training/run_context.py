"""The context that a run's stages share: recipe, store, agent, tasks, environments and policy."""

from __future__ import annotations

import copy
import re
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from rich.markup import escape
from torch import Tensor

from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, derive_seed
from palaestra.core.errors import RecipeError, TooManyFaults
from palaestra.core.model import Model, Sampling
from palaestra.core.task import TaskSet
from palaestra.environments.registry import make, spec, tasks
from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.compute.memory_budget import MemoryBudget
from palaestra.learning.critics.reward_model import RewardModel
from palaestra.learning.loop.learner import Learner, Reference
from palaestra.learning.methods.algorithms import Method
from palaestra.models.local.resident import ResidentModel
from palaestra.models.registry import REVISIONS
from palaestra.rollout.annotated_environment import AnnotatedPool, Notes
from palaestra.rollout.environment_pool import EnvironmentPool
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Elsewhere, Job, Rollout
from palaestra.rollout.worker_pool import WorkerPool
from palaestra.runtime.progress import Reporter
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training.accounting import Accounts
from palaestra.training.method import chosen
from palaestra.training.policy_building import put_state, selection, state_of
from palaestra.training.ranks import Team, described, make_learner, memory_of_rank, reference_of
from palaestra.training.recipe import Recipe
from palaestra.training.role_adapters import models_of_roles
from palaestra.training.stage_program import adds_to_prompts, distils
from palaestra.training.tracking import Tracking

if TYPE_CHECKING:
    from palaestra.training.actor import Engines


class Stateful(Protocol):
    """A model that learns beside the policy."""

    def state(self) -> Parts: ...
    def restore(self, parts: Parts) -> None: ...


Beside = Mapping[str, Stateful]
"""Models that learn beside the policy, by the prefix of their parts in checkpoints."""
VOCABULARY = "vocabulary"  # in the run folder: the tokenizer of the tiny transformer
TRIES = 5  # of the same episodes, while infrastructure breaks some of them


class RunContext:
    """A run in progress; the stages in `stages.py` are functions of it."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunFolder,
        reporter: Reporter,
        team: Team | None = None,
        *,
        elsewhere: Elsewhere | None = None,
        engines: Engines | None = None,
    ) -> None:
        """Prepare a run; see `run.execute`."""
        self.recipe, self.run, self.reporter, self.team = recipe, run, reporter, team
        self.elsewhere, self.engines = elsewhere, engines
        if elsewhere is not None and adds_to_prompts(recipe):
            raise RecipeError(
                "Stages with hints or commands add them to environments of this process; leave out "
                "--on ray."
            )
        self.store = run.database
        self.tracking = Tracking(run, recipe.model_dump(mode="json"), reporter)
        self.agent: Agent = make_agent(recipe.agent.chosen)
        self.tasks: TaskSet = tasks(recipe.environment.id)
        self.turns = recipe.environment.turns or typical_turns(recipe.environment.id)
        self.method = Method(chosen(recipe.rl))
        self.pool = (
            WorkerPool(recipe.environment.workers, recipe.environment.timeout)
            if recipe.environment.workers and elsewhere is None
            else None
        )
        self.environments = EnvironmentPool(self._make)
        self.accounts = Accounts(self.store, self.pool)
        self.policy: ResidentModel  # set once the weights are loaded
        self.record = "rl"  # under what the stage's episodes, metrics and weights are recorded
        self.whole = recipe  # with all its stages
        self.reward_model: RewardModel | None = None  # that replaces outcomes in the stage's RL
        self.first_task = 0  # of those on which the stage records episodes
        self.learners = recipe.training.learners  # roles whose adapters learn in the stage

    def of(self, record: str, recipe: Recipe, learners: tuple[str, ...]) -> Self:
        """Return the context of one stage, which shares all that belongs to the run.

        Args:
            record: under what the stage's episodes, metrics and weights are recorded.
            recipe: of that stage alone.
            learners: roles and clusters whose adapters learn in it; without LoRA none.
        """
        found = copy.copy(self)
        found.record, found.recipe, found.learners = record, recipe, learners
        found.method = Method(chosen(recipe.rl))
        return found

    def acting_as(self, agent: str) -> Self:
        """Return the context in which another agent than the recipe's acts."""
        found = copy.copy(self)
        found.agent = make_agent(agent)
        return found

    @property
    def stage_seed(self) -> int:
        """The seed of the stage: the run's own, for the only stage of its kind."""
        own = self.recipe.seed
        return own if self.record in ("imitation", "rl") else derive_seed(self.record, own)

    # ── rolling out ──────────────────────────────────────────────────────────

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Start workers and trackers; at the end, stop them and close all environments."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self.tracking)
            if self.pool is not None:
                await stack.enter_async_context(self.pool)
            stack.push_async_callback(self.environments.close)
            yield

    async def _make(self, environment: str) -> AsyncEnvironment:
        if self.pool is None:
            return LocalEnvironment(make(environment))
        return await self.pool.make(environment)

    def roles(self, model: Model) -> dict[str, Model]:
        """Return the model of each role, where `model` acts for the policy; see `role_adapters`."""
        return models_of_roles(self.recipe, self.policy, model)

    def rollout(
        self,
        models: Mapping[str, Model],
        turns: int,
        finished: Callable[[Episode], None],
        *,
        greedy: bool = False,
        needed: int | None = None,
        probes: bool = False,
        notes: Callable[[], Notes] | None = None,
    ) -> Rollout:
        environments = self.environments
        pool = environments if notes is None else AnnotatedPool(environments, notes)
        return Rollout(
            agent=self.agent,
            make_environment=pool.take,
            keep=pool.keep,
            models=models,
            budget=Budget(
                turns=turns, invalid_actions=self.recipe.environment.max_invalid_actions or None
            ),
            sampling=self.sampling(greedy=greedy),
            seed=self.recipe.seed,
            concurrency=self.recipe.concurrency,
            store=self.store,
            finished=finished,
            needed=needed,
            elsewhere=self.elsewhere,
            probes=probes,
        )

    def sampling(self, *, greedy: bool = False) -> Sampling:
        """Return how the agent's replies are sampled."""
        part = self.recipe.agent
        return Sampling(
            0.0 if greedy else part.temperature,
            part.max_tokens,
            tuple(part.stop),
            reasoning_tokens=part.reasoning_tokens,
        )

    async def run_jobs(self, rollout: Rollout, jobs: Sequence[Job]) -> list[Episode]:
        """Run the jobs; in deterministic mode, run all of them again if one is missing.

        There, episodes that infrastructure broke are run again before the run goes on: without
        them, the weights would differ.

        Raises:
            TooManyFaults: most episodes failed for reasons other than the agent; in deterministic
                mode, infrastructure broke some of them each time.
        """
        if not self.recipe.deterministic:
            return await rollout.run(jobs)
        agent_state = copy.deepcopy(vars(self.agent))
        for left in reversed(range(TRIES)):
            self.policy.engine.clear()  # no rounding depends on earlier episodes
            whole = [self.store.episode(job.key) for job in jobs]
            if any(episode is None or episode.outcome.retriable for episode in whole):
                for job in jobs:
                    self.store.forget(job.key)
            try:
                finished = await rollout.run(jobs)
            except TooManyFaults:
                finished = [e for job in jobs if (e := self.store.episode(job.key)) is not None]
                if not any(episode.outcome.retriable for episode in finished):
                    raise
            broken = [episode.outcome for episode in finished if episode.outcome.retriable]
            if not broken:
                return finished
            count = f"{len(broken)} of {len(jobs)} episodes of {jobs[0].key.phase}"
            why = f"{broken[-1]}: {broken[-1].detail}"
            if left:
                vars(self.agent).update(copy.deepcopy(agent_state))
                self.reporter.say(
                    f"infrastructure broke {count}; all of them run again: {escape(why)}"
                )
        raise TooManyFaults(
            f"Infrastructure broke {count} at the last of {TRIES} tries, the last one with {why}. "
            "deterministic = true needs all of them; fix the cause (mostly too little memory) and "
            "resume the run."
        )

    def lacks(self, phase: str, count: int) -> bool:
        """Return whether a phase lacks some of `count` episodes, or infrastructure broke some."""
        found = [one for one in self.store.summaries(phase) if one.key.phase == phase]
        return len(found) < count or any(one.outcome.retriable for one in found)

    # ── learning ─────────────────────────────────────────────────────────────

    def learner(
        self, learning_rate: float, *, for_rl: bool = False, reference: Reference | None = None
    ) -> Learner:
        """Create the policy's learner; for RL, with the critic and reference it needs.

        Other stages name the reference that they need.
        """
        learner = make_learner(
            self.recipe,
            self.policy,
            learning_rate,
            for_rl=for_rl,
            roles=self.learners,
            reference=reference,
            ranks=None if self.team is None else self.team.ranks,
        )
        if self.team is not None:
            revisions = self.store.get(REVISIONS) or {}
            folder = self.run.path / VOCABULARY
            description = described(
                self.recipe, learning_rate, for_rl, self.learners, revisions, folder, reference
            )
            learner.lead(self.team.leader(description, ordered=self.recipe.deterministic))
        return learner

    def check_memory(self) -> None:
        """Raise InputError if training does not fit into memory even with the smallest passes."""
        chosen = selection(self.policy, self.recipe)
        MemoryBudget(
            self.policy.network,
            chosen.parameters,
            chosen.frozen_layers,
            memory_of_rank(self.recipe),
            reference=reference_of(self.recipe, self.method) == "start" or distils(self.whole),
            families=self.recipe.rl.families,
            ranks=self.recipe.sharing,
            whole_gradients=self.recipe.deterministic,
        )

    def save(
        self,
        name: str,
        learner: Learner,
        state: Mapping[str, Any],
        beside: Beside = MappingProxyType({}),
    ) -> None:
        """Write a checkpoint of the stage; keep only the latest two of its RL."""
        whole = {**state, **state_of(self.policy)}
        tensors = ChainMap[str, Mapping[str, Tensor]](
            {
                prefix + part: tensor
                for prefix, model in beside.items()
                for part, tensor in model.state().items()
            },
            cast("dict[str, Mapping[str, Tensor]]", learner.state()),  # read part by part
        )
        self.store.sync()  # a checkpoint is never ahead of the record
        checkpoint.save(self.run.checkpoints, name, tensors, whole)
        for old in self.checkpoints()[:-2]:
            checkpoint.remove(self.run.checkpoints, old)

    def checkpoints(self, record: str | None = None) -> list[str]:
        """Return the names of the checkpoints of a stage (None: this one), the latest last."""
        own = re.compile(re.escape(record or self.record) + r"(-\d{6})?")
        return sorted(n for n in checkpoint.names(self.run.checkpoints) if own.fullmatch(n))

    def resume(
        self, learner: Learner, beside: Beside = MappingProxyType({})
    ) -> dict[str, Any] | None:
        """Restore learner, models beside it and policy from the stage's latest valid checkpoint."""
        for name in reversed(self.checkpoints()):
            try:
                found = checkpoint.load(self.run.checkpoints, name)
            except checkpoint.CorruptCheckpoint as error:
                self.reporter.say(f"{error} Using an earlier one.")
                continue
            learner.restore(found.tensors)
            for prefix, model in beside.items():
                own = found.tensors.items()
                model.restore({p[len(prefix) :]: t for p, t in own if p.startswith(prefix)})
            self.policy.engine.clear()
            put_state(self.policy, found.state)
            return dict(found.state)
        return None

    # ── accounting ─────────────────────────────────────────────────────────────

    def add_metrics(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Record the metrics of a step and send them to the trackers."""
        self.store.add_metrics(phase, step, values)
        self.tracking.log(phase, step, values)


def typical_turns(environment: str) -> int:
    """Return how many actions an episode of that environment typically takes."""
    return spec(environment).typical_turns
