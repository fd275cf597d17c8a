"""The whole loop on an environment of one question: real rollouts and policy, a few steps."""

import asyncio
import copy
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import (
    Action,
    Environment,
    Observation,
    Transition,
)
from palaestra.core.model import Sampling
from palaestra.core.task import Split, Task, TaskSet
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.critics.archer import Archer, ArcherPlan
from palaestra.learning.critics.value_head import Critic
from palaestra.learning.curricula.practice import Practice
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.learning.loop.batch import imitated_rows
from palaestra.learning.loop.fresh_replies import FreshReplies
from palaestra.learning.loop.learner import Learner
from palaestra.learning.loop.reinforce import ReinforcementPlan, StepResult, groups_of, reinforce
from palaestra.learning.loop.trainer_step import TrainerStep, TrainerStepPlan
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.methods.algorithms import ALGORITHMS, Method, algorithm
from palaestra.learning.methods.component import Need
from palaestra.models.local.architecture import Experts, LayerTraits
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Rollout
from tests.chosen import mostly_slow
from tests.learning.made import Words, lively, same

COLOURS = ("red", "green", "blue")


class Echo(Environment, capabilities={"state_key"}):
    """Says a colour; the one who repeats it wins."""

    instructions = "say"

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.wanted = COLOURS[task.seed // 3 % 3]
        return Observation(self.wanted)

    def state_key(self) -> str:
        return self.wanted

    def step(self, action: Action) -> Transition:
        right = action.text == self.wanted
        words = Observation("right" if right else "wrong")
        return Transition(words, float(right), terminated=True, success=right)


async def local(environment: str) -> LocalEnvironment:
    return LocalEnvironment(Echo())


def train(
    name: str,
    steps: int,
    *,
    first=1,
    state=None,
    lockstep=False,
    updates=2,
    staleness=0,
    warmup=0,
    layers=(),
):
    words = Words(("say", *COLOURS))
    network = tiny_network(len(words.words), layers=2, width=32, heads=4, context=32, seed=0)
    if layers:
        other = DecoderNetwork(replace(network.config, layers=layers))
        generator = torch.Generator().manual_seed(0)
        for parameter in other.parameters():
            torch.nn.init.normal_(parameter, std=0.02, generator=generator)
        other.load_state_dict(network.state_dict(), strict=False)  # all but the experts
        network = other
    network = lively(network, 8.0)
    model = ResidentModel("policy", network, words, slots=64, context=32, lockstep=lockstep)
    method = Method(algorithm(name))
    critic = Critic(1e-2) if Need.VALUE in method.needs else None
    learner = Learner(model, everything(network), Optimisation(3e-3), critic=critic)
    if state is not None:
        learner.restore(state)
    plan = ReinforcementPlan(
        steps=steps,
        practice=Practice((Echo.tasks("echo"),), 0),
        tasks=9,
        group=16,
        shaping=Shaping(1, options={"outcome": {"turn_cost": 0.0}}),
        trainer_step=TrainerStepPlan(
            minibatches=1 if method.algorithm.loss == "pg" else updates,
            learning_rate=1e-3,
            warmup=1,
            length=1,
            critic_warmup=warmup,
        ),
        staleness=staleness,
    )

    archer = None
    if Need.ACTION_VALUE in method.needs:
        fresh = FreshReplies(model, Sampling(1.0, 1))
        own = ArcherPlan(updates=8, batch=64, warmup=warmup, learning_rate=3e-3)
        archer = Archer(copy.deepcopy(network), fresh, own, seed=0)

    async def run_episode(jobs, *, turns, greedy):
        rollout = Rollout(
            DirectAgent(),
            local,
            {"agent": model},
            budget=Budget(turns=1),
            sampling=Sampling(0.0 if greedy else 1.0, 1),
            seed=0,
        )
        return await rollout.run(jobs)

    results: list[StepResult] = []
    asyncio.run(
        reinforce(
            TrainerStep(learner, method, plan.trainer_step, 0, archer=archer),
            run_episode,
            plan,
            first=first,
            past={},
            history=[],
            recall=lambda key: None,
            memory={},
            after=lambda result: results.append(result) is None,
        )
    )
    return results, learner


def test_a_step_tells_how_evenly_its_experts_were_used():
    layers = (LayerTraits(), LayerTraits(experts=Experts(count=4, chosen=1, inner=32)))
    results, _ = train("loop", 2, layers=layers)
    for result in results:
        assert 0 <= result.metrics["expert_entropy"] <= 1
        assert 0.25 <= result.metrics["expert_max"] <= 1
    plain, _ = train("loop", 1)
    assert "expert_max" not in plain[0].metrics


UNTRAINABLE = {Need.BELIEF, Need.CONTRIBUTION, Need.TREE}  # nothing here fills these slots
LEARNING = [name for name in ALGORITHMS if not UNTRAINABLE & Method(algorithm(name)).needs]
QUICK = ("loop", "turn-ppo")  # without a critic and with one


@pytest.mark.parametrize("name", mostly_slow(LEARNING, *QUICK))
def test_every_algorithm_learns_to_repeat_what_is_said(name):
    results, _ = train(name, 30)
    success = [result.metrics["success"] for result in results]
    assert fmean(success[:2]) < 0.35
    assert fmean(success[-5:]) > 0.85
    assert all(result.metrics.get("gap_max", 0.0) < 1e-3 for result in results)


def test_a_resumed_run_goes_on_bit_for_bit():
    whole, through = train("loop", 4, lockstep=True)
    _, half = train("loop", 2, lockstep=True)
    rest, resumed = train("loop", 4, first=3, state=copy.deepcopy(half.state()), lockstep=True)
    assert same(through.state()["weights"], resumed.state()["weights"], 0.0)
    for a, b in zip(whole[2:], rest, strict=True):
        assert [e.calls[0].completion for e in a.episodes] == [
            e.calls[0].completion for e in b.episodes
        ]


def test_staleness_delays_learning_and_nothing_else():
    fresh, _ = train("loop", 5)
    stale, _ = train("loop", 5, staleness=2)
    versions = [{c.version for e in r.episodes for c in e.calls} for r in stale]
    assert versions == [{0}, {0}, {0}, {2}, {4}]  # two updates a step, two steps late
    tasks = [[[e.task.id for e in r.episodes] for r in run] for run in (fresh, stale)]
    assert tasks[0] == tasks[1]


def test_at_first_only_the_critic_learns_what_the_frozen_policy_earns():
    results, learner = train("vapo", 4, warmup=4)
    _, untouched = train("vapo", 0)
    assert same(untouched.model.network.state_dict(), learner.model.network.state_dict(), 0.0)
    earned: dict[str, list[float]] = {}
    values: dict[str, float] = {}
    for episode in (episode for result in results for episode in result.episodes):
        colour = COLOURS[episode.task.seed // 3 % 3]
        earned.setdefault(colour, []).append(float(episode.outcome.solved))
        rows = imitated_rows(rows_of(episode, "policy"), Aggregation.TOKEN_MEAN)
        if colour not in values:
            assert untouched.values(rows) == [[0.0]]
            ((values[colour],),) = learner.values(rows)
    assert sorted(values, key=values.__getitem__) == sorted(earned, key=lambda c: fmean(earned[c]))
    assert all({"value_loss", "explained_variance"} <= set(r.metrics) for r in results)


def test_every_step_practises_on_new_training_tasks():
    def jobs_with(seed, steps):
        practice = Practice((Echo.tasks("echo"),), seed)
        plan = ReinforcementPlan(3, practice, 4, 2, Shaping(1), TrainerStepPlan(1, 1e-3, 1, 1))
        return [job for s in steps for group in groups_of(s, plan, {}) for job in group]

    jobs = jobs_with(0, (1, 2, 3))
    assert len({job.key for job in jobs}) == len(jobs) == 24
    assert len({job.task.id for job in jobs}) == 12
    assert {job.task.split for job in jobs} == {Split.TRAIN}
    other = jobs_with(1, (1,))
    assert not {job.task.id for job in other} & {job.task.id for job in jobs}
