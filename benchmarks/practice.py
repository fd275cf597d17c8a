"""The reinforcement learning that learners are compared on: GRPO on BabyAI with text observations.

8 tasks, 8 rollouts of each, up to 8 turns a rollout, replies of at most 4 tokens; SmolLM2-135M
in bf16, all of its weights trained. Episodes, tokens and advantages are the same for every
learner: an advantage is a rollout's return over its group's mean, in standard deviations, and
the loss is PPO's, its mean taken over a rollout's tokens, then over rollouts.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.model import Model, Sampling
from palaestra.core.task import Split
from palaestra.environments.registry import make, tasks
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Trained, spread
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.data.rows import Row, rows_of
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.aggregation import Aggregation, token_weights
from palaestra.models.local.devices import device, precision
from palaestra.models.local.networks import load_network
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.weights import prepare
from palaestra.models.registry import renderer_of
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout

ENVIRONMENT = "babyai/GoToLocalS5N2"
TASKS, GROUP, TURNS, REPLY = 8, 8, 8, 4
LEARNING_RATE, BETAS, CLIP_NORM = 1e-6, (0.9, 0.95), 1.0


def checkpoint() -> Path:
    """The folder of SmolLM2-135M's checkpoint."""
    return prepare("smollm2-135m", lambda text: None)


def policy() -> ResidentModel:
    """SmolLM2-135M, in bf16 where the machine multiplies it natively."""
    folder, here = checkpoint(), device("auto")
    network = load_network(folder, precision("auto", here)).to(here)
    renderer = renderer_of(folder)
    return ResidentModel("smollm2-135m", network, renderer, slots=TASKS * GROUP, context=1024)


def learner_of(model: ResidentModel) -> Learner:
    """Of all weights, with the settings that the peer has too."""
    optimisation = Optimisation(LEARNING_RATE, clip_norm=CLIP_NORM, betas=BETAS)
    return Learner(model, everything(model.network), optimisation)


def live(model: Model, step: int) -> list[Episode]:
    """The rollouts of a step, group after group."""

    async def world(environment: str) -> AsyncEnvironment:
        return LocalEnvironment(make(environment))

    rollout = Rollout(
        agent=DirectAgent(),
        make_environment=world,
        models={"agent": model},
        budget=Budget(turns=TURNS),
        sampling=Sampling(1.0, REPLY),
        seed=step,
        concurrency=TASKS * GROUP,
    )
    drawn = tasks(ENVIRONMENT).take(Split.TRAIN, TASKS, step * TASKS)
    jobs = [
        Job(Key(f"step/{step}", group, member), task)
        for group, task in enumerate(drawn)
        for member in range(GROUP)
    ]
    return asyncio.run(rollout.run(jobs))


def recorded(model: ResidentModel, step: int) -> list[Row]:
    """Rows of a step of random actions, in the tokens that the model would have to sample."""
    return rows(live(RandomModel(DirectAgent(), model.renderer), step), RandomModel.name)


def rows(episodes: Sequence[Episode], name: str) -> list[Row]:
    """Return the replies of the policy of that name, one row per rollout."""
    found = [rows_of(episode, name) for episode in episodes]
    assert all(len(each) == 1 for each in found), "a rollout of a direct agent is one row"
    return [each[0] for each in found]


def returns_of(episodes: Sequence[Episode]) -> list[float]:
    """1 where the task was solved."""
    return [float(episode.outcome.solved) for episode in episodes]


def drawn_returns(count: int, seed: int) -> list[float]:
    """Returns by lot: no group is flat, so every rollout teaches."""
    dice = random.Random(seed)
    return [dice.random() for _ in range(count)]


def batch(found: Sequence[Row], returns: Sequence[float]) -> list[Trained]:
    """The rows of a step, credited within groups of `GROUP`."""
    advantages: list[float] = []
    for at in range(0, len(returns), GROUP):
        group = returns[at : at + GROUP]
        mean, deviation = statistics.fmean(group), statistics.stdev(group)
        advantages += [(value - mean) / (deviation + 1e-4) for value in group]
    weights = token_weights(found, Aggregation.ROLLOUT_TOKEN_MEAN)
    return [
        Trained(
            row.tokens,
            row.mask,
            lp_old=row.logprobs,
            advantage=[advantage] * len(row.tokens),
            weight=weight,
            turn=row.calls,
            rollout=row.key,
        )
        for row, advantage, weight in zip(found, advantages, weights, strict=True)
    ]


def on_policy(found: Sequence[Trained], learner: Learner) -> list[Trained]:
    """The same rows as if the learner's present weights had sampled them."""
    logprobs = learner.logprobs(found)
    return [
        replace(row, lp_old=spread(row.mask, known), lp_beh=spread(row.mask, known))
        for row, known in zip(found, logprobs, strict=True)
    ]
