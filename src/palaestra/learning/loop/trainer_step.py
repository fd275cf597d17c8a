"""The trainer step on one step's rollouts: credit, corrections, minibatches."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from palaestra.core.episode import Episode, Key, derive_seed
from palaestra.learning.compute.packing import Trained, adapter_of, check_sampled
from palaestra.learning.credit.rule import Credit, groups
from palaestra.learning.critics.archer import Archer
from palaestra.learning.critics.encoder import replies
from palaestra.learning.critics.progress_estimator import ProgressEstimator
from palaestra.learning.critics.reward_model import RewardModel
from palaestra.learning.critics.separate_critic import SeparateCritic
from palaestra.learning.critics.value_head import ValueUpdate
from palaestra.learning.data.adapter_replies import learned_by
from palaestra.learning.data.advised import AdvicePlan, executed
from palaestra.learning.data.filters import spread
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import Row, rows_of
from palaestra.learning.data.trajectory import Trajectory, with_turns_filled
from palaestra.learning.data.trees import with_parents
from palaestra.learning.loop import batch as b
from palaestra.learning.loop.learner import Learner, Update
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.entropy_control import PREFIX as ENTROPY
from palaestra.learning.losses.entropy_control import EntropyControl, EntropyPlan
from palaestra.learning.losses.gradient_conflicts import Families
from palaestra.learning.losses.trained_tokens import Unit
from palaestra.learning.methods.algorithms import Method
from palaestra.learning.methods.component import Need
from palaestra.models.local.feed_forward import expert_balance

Learned = tuple[list[Update], Mapping[str, float], dict[str, float]]
"""Updates, the credit rule's state, and metrics of the batch."""


@dataclass(frozen=True, slots=True)
class InTurns:
    """Adapters that learn in turns: in each step one of them, while the others act as they are.

    Credit and weights of tokens are those of a step in which all learn; what is left out is only
    the learning of the others.
    """

    adapters: tuple[str, ...]  # names in the network, in the order of their turns
    steps: int  # of a turn

    def at(self, step: int) -> str:
        """Return the adapter that learns in a step (1-based)."""
        return self.adapters[(step - 1) // self.steps % len(self.adapters)]


@dataclass(frozen=True, slots=True)
class FittingProgress:
    """How the progress model learns beside the policy (SPA-RL fits it once, before)."""

    updates: int  # per step
    warmup: int  # first steps, in which only it learns


@dataclass(frozen=True, slots=True)
class TrainerStepPlan:
    """Settings of one trainer step."""

    minibatches: int  # optimiser steps per step
    learning_rate: float
    warmup: int  # steps over which the learning rate rises
    length: int  # constant of `Aggregation.ROLLOUT_TOKEN_NORM`, in sampled tokens
    entropy: EntropyPlan | None = None
    recompute: bool = False
    """Take lp_old from the learner, not from the sampler; and for calls without log-probabilities
    (an import, a loop of one's own) the sampler's too. Without it such calls are an error."""

    critic_warmup: int = 0
    """Number of first steps in which only the critic learns: the value pretraining of VC-PPO (Yuan
    et al. 2025) and VAPO. With their credit, its targets are the real returns of the policy, still
    frozen; `explained_variance` shows when it has converged."""

    progress: FittingProgress | None = None  # with a progress model
    in_turns: InTurns | None = None  # None: all adapters learn in each step
    privileged: bool = False  # train the learner's head on privileged numbers of states
    advice: AdvicePlan | None = None  # of rollouts in which an advisor acts; None: none does
    conflict: Literal["measure", "project"] | None = None
    """Keep the gradients of task families apart: measure their cosines, or also project what
    conflicts (see `gradient_conflicts`). None: neither."""


class TrainerStep:
    """The trainer step of each step's rollouts; keeps no state between steps."""

    def __init__(
        self,
        learner: Learner,
        method: Method,
        plan: TrainerStepPlan,
        seed: int,
        critic: SeparateCritic | None = None,
        progress: ProgressEstimator | None = None,
        reward_model: RewardModel | None = None,
        archer: Archer | None = None,
    ) -> None:
        """Prepare the step.

        Args:
            learner: of the policy.
            method: credit, loss and filters.
            plan: the settings.
            seed: of the order of rollouts.
            critic: a separate one; None: methods that read values ask the learner's.
            progress: the progress model of methods that read contributions.
            reward_model: whose score replaces the outcome of each rollout; None: the true one.
            archer: the critic of replies of methods that read action values.
        """
        self.learner, self.method, self.plan, self.seed = learner, method, plan, seed
        self.critic, self.progress, self.reward_model = critic, progress, reward_model
        self.archer = archer

    @property
    def compares_greedy(self) -> bool:
        """Whether the credit rule reads the return of a greedy rollout of each task."""
        return Need.GREEDY in self.method.needs

    def learning(
        self,
        step: int,
        episodes: Sequence[Episode],
        shaping: Shaping,
        memory: Mapping[str, float],
        greedy: Mapping[int, float],
    ) -> Generator[None, None, Learned]:
        """Credit the rollouts and update the weights once per minibatch, in chunks.

        Yields after each micro-batch, so that the model may act in between: within a
        minibatch the weights stay as they are.

        Returns:
            updates, the credit rule's state, and metrics of the batch.

        Raises:
            InputError: rewards, log-probabilities, or a rule's results, are missing or not
                numbers; names them.
        """
        policy, network = self.learner.model.name, self.learner.model.network
        episodes, advised = self._advised(episodes, policy)
        episodes = learned_by(episodes, policy, network, self.learner.adapters)
        every = b.trajectories(episodes, shaping, policy)
        if Need.TREE in self.method.needs:
            every = with_parents(every, episodes)
        modelled: dict[str, float] = {}
        if self.reward_model is not None and every:
            every, modelled = _modelled(every, episodes, self.reward_model, policy, shaping)
        batch = [replace(t, greedy=greedy.get(t.key.group)) for t in every]
        batch = b.filtered(batch, self.method)
        more = spread_of_rewards(every, len(batch)) | modelled
        if not batch:
            return [], memory, more
        by_key = {episode.key: episode for episode in episodes}
        rows = {t.key: rows_of(by_key[t.key], policy) for t in batch}
        if Need.VALUE in self.method.needs:
            batch = self._valued(batch, [row for t in batch for row in rows[t.key]])
        if self.progress is not None and self.plan.progress is not None:
            batch, fitted = self._attributed(batch, [row for t in batch for row in rows[t.key]])
            more |= fitted
            if step <= self.plan.progress.warmup:
                return [], memory, more
        if self.archer is not None:
            warming = self.archer.warming
            batch, fitted = self._with_reply_advantages(
                self.archer, batch, [row for t in batch for row in rows[t.key]]
            )
            more |= fitted
            if warming:
                return [], memory, more
        states: b.PrivilegedNumbers = {}
        if self.plan.privileged:
            states = b.privileged_numbers(batch, by_key)
        own = {name: v for name, v in memory.items() if not name.startswith(ENTROPY)}
        credit = self.method.credit(batch, own)
        parts = self._minibatches(step, batch, rows, credit)
        if step > self.plan.critic_warmup:
            parts = self._in_turn(step, parts)
        parts, weights = self._prepared(parts, step, advised, states)
        more |= weights
        if step <= self.plan.critic_warmup:
            fits = [(self.critic or self.learner).update_values(part) for part in parts]
            return [], credit.state, more | _of_fits(fits)
        before = self.learner.model.version
        control = None
        if self.plan.entropy is not None:
            control = EntropyControl(self.plan.entropy, step, memory)
        updates = []
        for number, part in enumerate(parts):
            done = (step - 1) + (number + 1) / len(parts)
            families = self._families(batch, step, number)
            updates.append((yield from self._update(part, done, before, control, families)))
        more |= expert_balance(self.learner.model.network)
        return updates, {**credit.state, **(control.remembered() if control else {})}, more

    def _minibatches(
        self,
        step: int,
        batch: Sequence[Trajectory],
        rows: Mapping[Key, Sequence[Row]],
        credit: Credit,
    ) -> list[list[Trained]]:
        """Return the rows that train something, in random order, with their credit and weights."""
        threshold = self.method.algorithm.negligible
        chosen = b.instructive(batch, credit, threshold) if threshold else set(rows)
        order = sorted(chosen, key=str)
        random.Random(f"{self.seed}/{step}").shuffle(order)
        flat = [row for key in order for row in rows[key]]
        taught = set(rows) if self._teaches_without_advantage() else b.instructive(batch, credit)
        advantage = b.per_call(batch, credit.advantages)
        targets = None
        if credit.returns is not None and Need.VALUE in self.method.needs:
            targets = b.per_call(batch, credit.returns)
        parts = []
        for part in b.split_by_rollout(flat, self.plan.minibatches, order):
            trained = b.trained_rows(
                part,
                advantage,
                self.method.algorithm.aggregation,
                length=self.plan.length,
                targets=targets,
            )
            # those left out count in the weights' denominators, but need no pass
            parts.append([row for row in trained if row.rollout in taught])
        return [part for part in parts if part]

    def _in_turn(self, step: int, parts: list[list[Trained]]) -> list[list[Trained]]:
        """Return the rows of the adapter whose turn it is; all rows if there are no turns."""
        if self.plan.in_turns is None:
            return parts
        network, own = self.learner.model.network, self.plan.in_turns.at(step)
        kept = [[row for row in part if adapter_of(row, network) == own] for part in parts]
        return [part for part in kept if part]

    def _advised(
        self, episodes: Sequence[Episode], policy: str
    ) -> tuple[Sequence[Episode], b.Replies]:
        """Return the episodes as the policy's own, and what is known of its turns with advice."""
        if self.plan.advice is None:
            return episodes, {}
        found = [executed(episode, policy) for episode in episodes]
        replies: b.Replies = {
            (one.episode.key, call): reply for one in found for call, reply in one.replies.items()
        }
        return [one.episode for one in found], replies

    def _prepared(
        self,
        parts: list[list[Trained]],
        step: int,
        advised: b.Replies,
        states: b.PrivilegedNumbers,
    ) -> tuple[list[list[Trained]], dict[str, float]]:
        """Return minibatches with what is measured once, at the weights before the first update.

        With it, return metrics of advised turns.
        """
        metrics: dict[str, float] = {}
        rows = [row for part in parts for row in part]
        if not self.plan.recompute:
            check_sampled(rows)
        if rows and (self.plan.recompute or self.method.correction is not None):
            rows = b.with_proximal(rows, self.learner.logprobs(rows))
        if rows and Need.REFERENCE in self.method.needs:
            rows = b.with_reference(rows, self.learner.reference(rows))
        if rows and self.plan.advice is not None:
            rows, weights = b.weighed(rows, advised, self.plan.advice, step)
            metrics = {
                "advised": fmean([float(reply.advised) for reply in advised.values()] or [0.0]),
                "advice_weight": fmean(weights or [1.0]),
            }
        if states:
            rows = b.with_privileged(rows, states)
        left = iter(rows)
        parts = [b.corrected([next(left) for _ in part], self.method) for part in parts]
        return parts, metrics

    def _families(self, batch: Sequence[Trajectory], step: int, number: int) -> Families | None:
        """Return the families of the rollouts for a minibatch of a step; None: not kept apart."""
        if self.plan.conflict is None:
            return None
        seed = derive_seed("conflict", self.seed, step, number)
        return Families({t.key: t.task for t in batch}, self.plan.conflict == "project", seed)

    def _update(
        self,
        rows: list[Trained],
        done: float,
        before: int,
        control: EntropyControl | None,
        families: Families | None,
    ) -> Generator[None, None, Update]:
        """Run one optimiser step, `done` steps into the run; `before`: version of `lp_old`."""
        plan = self.plan
        fit = None if self.critic is None else self.critic.update_values(rows)
        update = yield from self.learner.updating(
            rows,
            self.method.loss,
            learning_rate=plan.learning_rate * min(1.0, done / plan.warmup),
            entropy=control.term if control else None,
            proximal=before,
            whole_rollouts=self.method.unit is Unit.ROLLOUT,
            families=families,
        )
        if fit is None:
            return update
        return replace(update, value_loss=fit.value_loss, explained_variance=fit.explained_variance)

    def _teaches_without_advantage(self) -> bool:
        """Return whether rollouts without advantages still train: by KL, entropy or heads."""
        reads = {Need.REFERENCE, Need.VALUE} & self.method.needs
        return bool(reads) or self.plan.entropy is not None or self.plan.privileged

    def _valued(self, batch: Sequence[Trajectory], rows: Sequence[Row]) -> list[Trajectory]:
        """Return the trajectories with the critic's values, also where they were cut off."""
        critic = self.critic or self.learner
        trained = b.imitated_rows(rows, Aggregation.TOKEN_MEAN)
        ends = critic.end_values(trained)
        after = {(row.key, row.calls[-1]): end for row, end in zip(rows, ends, strict=True)}
        values = b.gathered(rows, critic.values(trained))
        return [b.with_ends(t, after) for t in b.with_values(batch, values)]

    def _attributed(
        self, batch: Sequence[Trajectory], rows: Sequence[Row]
    ) -> tuple[list[Trajectory], dict[str, float]]:
        """Return the trajectories with the progress model's estimates, and fit it to them then.

        So no estimate has seen the return of its own rollout.
        """
        assert self.progress is not None  # the caller asked
        assert self.plan.progress is not None
        estimates = self.progress.contributions(batch, rows)
        errors = [(sum(e) - t.total) ** 2 for e, t in zip(estimates, batch, strict=True)]
        losses = self.progress.learn(batch, rows, self.plan.progress.updates)
        figures = {"progress_error": fmean(errors), "progress_loss": fmean(losses)}
        return with_turns_filled(batch, "contribution", estimates), figures

    def _with_reply_advantages(
        self, archer: Archer, batch: Sequence[Trajectory], rows: Sequence[Row]
    ) -> tuple[list[Trajectory], dict[str, float]]:
        """Return the trajectories with the advantages of replies, after a fit to all rollouts."""
        self.learner.model.engine.clear()  # fresh replies depend on no rounding of the rollouts
        explained = archer.explained(batch, rows)
        losses = archer.learn(batch, rows)
        advantages = archer.advantages(batch, rows)
        sizes = [abs(number) for turns in advantages for number in turns]
        figures = {
            "archer_explained": explained,
            "archer_loss": fmean(losses),
            "archer_advantage": fmean(sizes),
            "archer_replay": float(len(archer.replay.items)),
            "archer_tokens": float(archer.proposed),
        }
        return with_turns_filled(batch, "advantage", advantages), figures


def spread_of_rewards(batch: Sequence[Trajectory], left: int) -> dict[str, float]:
    """Return metrics for monitors: the returns' spread within groups, and the share discarded."""
    if not batch:
        return {"discarded": 1.0}
    together = [[batch[i] for i in members] for members in groups([t.group for t in batch])]
    return {
        "group_std": fmean(spread(group) for group in together),
        "discarded": 1 - left / len(batch),
    }


def _modelled(
    batch: Sequence[Trajectory],
    episodes: Sequence[Episode],
    model: RewardModel,
    policy: str,
    shaping: Shaping,
) -> tuple[list[Trajectory], dict[str, float]]:
    """Return the trajectories with the model's score as their outcome, and how right it was.

    `modelled_accuracy` is the share of pairs (a success, a failure of the same task) that it ranks
    right, before it could learn from them.
    """
    by_key = {episode.key: episode for episode in episodes}
    rows = [row for t in batch for row in rows_of(by_key[t.key], policy)]
    scores = model.scores([turns[-1].whole for turns in replies(batch, rows)])
    figures = {"modelled_reward": fmean(scores)}
    right = [
        float(scores[good] > scores[bad]) + 0.5 * (scores[good] == scores[bad])
        for members in groups([t.group for t in batch])
        for good in members
        for bad in members
        if batch[good].success and not batch[bad].success
    ]
    if right:
        figures["modelled_accuracy"] = fmean(right)
    found = [
        replace(t, outcome=shaping.outcome(by_key[t.key], score))
        for t, score in zip(batch, scores, strict=True)
    ]
    return found, figures


def _of_fits(fits: Sequence[ValueUpdate]) -> dict[str, float]:
    """Return metrics of a step in which only the critic learned; means over its updates."""
    if not fits:
        return {}
    names = ("value_loss", "explained_variance")
    return {name: fmean(getattr(fit, name) for fit in fits) for name in names}
