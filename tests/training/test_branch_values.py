"""Branches: measured advantages against those that a small world lets one work out."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, AsyncEnvironment, Signals, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.graph import Call
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Owner
from palaestra.core.task import Task
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.methods.credit_comparison import Estimate
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.run_folder import RunFolder
from palaestra.training.branch_values import Plan, advantages, latest_policy, plan, values
from palaestra.training.recipe import check
from palaestra.training.trace import Trace
from tests.core.small import Stairs, renderer

HEIGHT, UP = 3, 0.6
TASKS = [Task(f"train/{i}", "stairs", i) for i in range(2)]
SHAPING = Shaping(HEIGHT, options={"outcome": {"turn_cost": 0.0}})


class Climber(Model):
    """Says `up` with probability UP, else `fall`; counts how often it was asked."""

    name = "climber"

    def __init__(self) -> None:
        self.renderer = renderer()
        self.asked = 0

    async def generate(self, prompt: Prompt) -> Generation:
        self.asked += 1
        word = "up" if random.Random(prompt.seed).random() < UP else "fall"
        return given_generation(word, prompt, self)


def worth(place: int) -> float:
    """The true value of a stair: all those above must be climbed."""
    return float(UP ** (HEIGHT - place))


def rollout(model: Model, world: type[AsyncEnvironment] = Stairs, **more: object) -> Rollout:
    async def worlds(environment: str) -> AsyncEnvironment:
        return world()

    budget = Budget(turns=HEIGHT + 1)
    return replace(Rollout(DirectAgent(), worlds, {"agent": model}, budget, seed=5), **more)


def recorded_trace(count: int = 4) -> Trace:
    """Groups of `count` rollouts of two tasks."""
    jobs = [Job(Key("rl/1", g, m), task) for g, task in enumerate(TASKS) for m in range(count)]
    episodes = asyncio.run(rollout(Climber()).run(jobs))
    batch = tuple(SHAPING.trajectory(episode, Climber.name) for episode in episodes)
    return Trace("rl/1", Climber.name, SHAPING, tuple(episodes), batch, 0)


def measured(
    trace: Trace, made: Plan, samples: int, **more: object
) -> dict[tuple[Key, int], Estimate]:
    work = values(rollout(Climber(), **more), made.states, samples, SHAPING)
    return advantages(trace, made.paths, asyncio.run(work))


def places(trace: Trace) -> list[tuple[Key, int, str, int]]:
    """Yield each turn: rollout, position, reply, and the stair of the reply."""
    return [
        (episode.key, k, call.reply.text, k)  # every turn before the last went up
        for episode in trace.episodes
        for k, call in enumerate(episode.calls)
    ]


def test_measured_advantages_are_those_that_can_be_worked_out() -> None:
    trace = recorded_trace()
    found = measured(trace, plan(trace, 300, 10_000), 300)
    assert len(found) == sum(len(t.turns) for t in trace.batch)
    assert {word for _, _, word, _ in places(trace)} == {"up", "fall"}
    for key, turn, word, place in places(trace):
        after = 0.0 if word == "fall" else worth(place + 1)
        estimate = found[key, turn]
        assert abs(estimate.mean - (after - worth(place))) < 4 * estimate.error + 1e-9
        assert 0 < estimate.error < 0.05


def test_the_value_after_the_last_turn_is_the_recorded_return_itself() -> None:
    trace = recorded_trace()
    made = plan(trace, 40, 10_000)
    value = asyncio.run(values(rollout(Climber()), made.states, 40, SHAPING))
    found = advantages(trace, made.paths, value)
    for index, numbers in made.paths.items():
        trajectory, before = trace.batch[index], value[numbers[-1]]
        last = found[trajectory.key, len(trajectory.turns) - 1]
        assert last == Estimate(trajectory.total - before.mean, before.error)


def test_equal_pasts_are_run_once() -> None:
    trace = recorded_trace(count=6)
    made = plan(trace, 2, 10_000)
    assert set(made.paths) == set(range(12))
    # an agent that still climbs has only replied `up`: a task has at most one state per stair
    longest = [
        max(len(t.turns) for t in trace.batch if t.key.group == group)
        for group in range(len(TASKS))
    ]
    assert len(made.states) == sum(longest)
    starts = {made.paths[i][0] for i in made.paths if trace.batch[i].key.group == 0}
    assert len(starts) == 1


def test_recorded_turns_are_not_asked_again_and_the_rest_is_run_again() -> None:
    trace = recorded_trace()
    made = plan(trace, 3, 10_000)
    model, branches = Climber(), list[Episode]()
    runs_on = rollout(model, finished=branches.append)
    asyncio.run(values(runs_on, made.states, 3, SHAPING))
    assert len(branches) == 3 * len(made.states)
    fresh = 0
    for branch in branches:
        past = [e for e in made.states[branch.key.group].past if isinstance(e, Call)]
        assert branch.calls[: len(past)] == tuple(past)
        assert len(branch.calls) > len(past)
        fresh += len(branch.calls) - len(past)
    assert model.asked == fresh


def test_a_budget_takes_whole_rollouts_as_long_as_they_fit() -> None:
    trace = recorded_trace(count=8)
    whole = plan(trace, 5, 10_000)
    some = plan(trace, 5, 5 * (len(whole.states) - 1))
    assert 0 < len(some.paths) < len(whole.paths)
    assert len(some.states) < len(whole.states)
    for index, numbers in some.paths.items():
        assert len(numbers) == len(trace.batch[index].turns)
    assert plan(trace, 5, 10_000).paths == whole.paths  # equal inputs, equal plans
    with pytest.raises(InputError, match="--budget"):
        plan(trace, 5, 4)


def test_states_are_numbered_as_they_stand_in_the_plan() -> None:
    made = plan(recorded_trace(), 2, 10_000)
    assert [state.number for state in made.states] == list(range(len(made.states)))


def test_a_world_that_does_not_repeat_its_past_is_an_error() -> None:
    class Renamed(Stairs):
        def __init__(self) -> None:
            super().__init__(name="rung")

    trace = recorded_trace()
    with pytest.raises(InputError, match="does not repeat its recorded past"):
        measured(trace, plan(trace, 2, 10_000), 2, make_environment=_made(Renamed))


def test_branches_that_a_world_broke_do_not_count() -> None:
    class Fragile(Stairs):
        """An environment that breaks at an action on its last stair."""

        async def step(self, action: Action) -> tuple[Transition, Signals]:
            if self.place == 2:
                raise EnvironmentFault("crash", "the last stair is rotten")
            return await super().step(action)

    trace = recorded_trace()
    made = plan(trace, 12, 10_000)
    ended: list[Episode] = []
    runs_on = rollout(Climber(), make_environment=_made(Fragile), finished=ended.append)
    starts = [state for state in made.states if not state.past]
    value = asyncio.run(values(runs_on, starts, 12, SHAPING))
    broken = [e for e in ended if e.outcome.owner is Owner.ENVIRONMENT]
    assert broken
    assert all(value[state.number].mean == 0.0 for state in starts)  # what is left all fell
    assert advantages(trace, made.paths, {}).keys() == set()  # nothing known around any turn


def test_a_run_without_a_checkpoint_cannot_branch(tmp_path: Path) -> None:
    data = {"environment": {"id": "babyai/GoToObjS4"}, "model": {"name": "tiny"}}
    with (
        RunFolder.create(tmp_path / "run", data) as opened,
        pytest.raises(InputError, match="no checkpoint to branch with"),
    ):
        latest_policy(check(data), opened, tmp_path)


def _made(kind: type[AsyncEnvironment]) -> object:
    async def worlds(environment: str) -> AsyncEnvironment:
        return kind()

    return worlds
