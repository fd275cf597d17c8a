"""The whole loop on a world of one question: real rollouts, a real policy, a few steps."""

import asyncio
import copy
from statistics import fmean

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.model import Sampling
from palaestra.core.task import Split, Task, TaskSet
from palaestra.learning.algorithms import ALGORITHMS, algorithm
from palaestra.learning.learner import Learner, Optimisation
from palaestra.learning.reinforce import ReinforcementPlan, StepResult, jobs_of, reinforce
from palaestra.learning.rewards import Shaping
from palaestra.learning.selection import everything
from palaestra.models.resident import ResidentModel
from palaestra.models.tiny import tiny_network
from palaestra.rollout.runner import Rollout
from palaestra.rollout.worlds import LocalWorld
from tests.learning.made import Words, lively, same

COLOURS = ("red", "green", "blue")


class Echo(Environment):
    """Says a colour; the one who repeats it wins."""

    instructions = "say"

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.wanted = COLOURS[task.seed // 3 % 3]
        return Observation(self.wanted)

    def step(self, action: Action) -> Transition:
        right = action.text == self.wanted
        words = Observation("right" if right else "wrong")
        return Transition(words, float(right), terminated=True, success=right)


async def local(environment: str) -> LocalWorld:
    return LocalWorld(Echo())


def train(name: str, steps: int, *, first=1, state=None, lockstep=False, updates=2):
    words = Words(("say", *COLOURS))
    network = lively(
        tiny_network(len(words.words), layers=2, width=32, heads=4, context=32, seed=0), 8.0
    )
    model = ResidentModel("policy", network, words, slots=64, context=32, lockstep=lockstep)
    learner = Learner(model, everything(network), Optimisation(3e-3))
    if state is not None:
        learner.restore(state)
    plan = ReinforcementPlan(
        steps=steps,
        tasks=9,
        group=16,
        minibatches=1 if name == "rloo" else updates,
        learning_rate=1e-3,
        warmup=1,
        shaping=Shaping(most_turns=1, turn_cost=0.0),
    )
    rollout = Rollout(
        DirectAgent(),
        local,
        {"agent": model},
        budget=Budget(turns=1),
        sampling=Sampling(1.0, 1),
        seed=0,
    )
    results: list[StepResult] = []
    asyncio.run(
        reinforce(
            learner,
            rollout.run,
            Echo.tasks("echo"),
            algorithm(name),
            plan,
            seed=0,
            first=first,
            after=lambda result: results.append(result) is None,
        )
    )
    return results, learner


@pytest.mark.parametrize("name", ALGORITHMS)
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


def test_every_step_practises_on_new_training_tasks():
    plan = ReinforcementPlan(3, 4, 2, 1, 1e-3, 1, Shaping(most_turns=1))
    tasks = Echo.tasks("echo")
    jobs = [job for step in (1, 2, 3) for job in jobs_of(step, tasks, plan, seed=0)]
    assert len({job.key for job in jobs}) == len(jobs) == 24
    assert len({job.task.id for job in jobs}) == 12
    assert {job.task.split for job in jobs} == {Split.TRAIN}
    other = jobs_of(1, tasks, plan, seed=1)
    assert not {job.task.id for job in other} & {job.task.id for job in jobs}
