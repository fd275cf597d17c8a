"""Gymnasium's grids with goals: the package's moves, and a cell to reach."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

pytest.importorskip("gymnasium")

import gymnasium

from palaestra.core.environment import Action
from palaestra.core.errors import UnknownName
from palaestra.core.goals import ACHIEVED, without_goal
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.gymnasium.goals import GoalGrids, worded

IDS = [f"gymnasium-goals/{name}" for name in GoalGrids.names()]


def started(id: str, index: int = 0) -> tuple[GoalGrids, str]:
    made = registry.make(id)
    assert isinstance(made, GoalGrids)
    return made, made.reset(registry.tasks(id).task(Split.TRAIN, index)).text


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("id", [id for id in IDS if not id.endswith("corner")])
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id, steps=15))


@pytest.mark.parametrize("id", ["Taxi-v4", "CliffWalking-v1"])
def test_the_corner_shares_rows_and_columns_with_the_outside_but_no_cell(id: str) -> None:
    every, corner, outside = (
        set(started(f"gymnasium-goals/{id}{region}")[0]._region)
        for region in ("", "/corner", "/outside")
    )
    assert corner | outside == every and not corner & outside and corner
    assert {row for row, _ in corner} <= {row for row, _ in outside}
    assert {column for _, column in corner} <= {column for _, column in outside}
    assert len(every) == (25 if id == "Taxi-v4" else 38)  # 48 cells without the cliff's ten


@pytest.mark.parametrize("id", IDS)
def test_goals_are_of_their_region_and_never_where_an_episode_begins(id: str) -> None:
    seen = set()
    for index in range(60):
        made, text = started(id, index)
        assert text == f"Goal: {worded(made._goal)}.\nYou are in {worded(made._cell())}."
        assert made._goal in made._region and made._goal != made._cell()
        seen.add(made._goal)
    assert len(seen) > min(3, len(made._region) - 1)


@pytest.mark.parametrize("id", IDS)
def test_moves_are_the_packages_and_what_they_achieve_is_said(id: str) -> None:
    made, _ = started(id, 3)
    inner = gymnasium.make(made._id, disable_env_checker=True)
    inner.reset(seed=registry.tasks(id).task(Split.TRAIN, 3).seed)
    rng = random.Random(id)
    for _ in range(40):
        action = made.sample_action(rng)
        _, _, over, _, _ = inner.step(made._parser.words.index(action.text))
        got = made.step(action)
        cell = made._cell()
        assert made._env.unwrapped.s == inner.unwrapped.s
        assert got.observation.text.startswith(f"Goal: {worded(made._goal)}.\n")
        assert without_goal(got.observation.text) == f"You are in {worded(cell)}."
        assert got.info.get(ACHIEVED) == (worded(cell) if cell in made._region else None)
        assert got.success == (cell == made._goal) == bool(got.reward)
        assert got.terminated == (got.success or over)
        if got.terminated:
            break


@pytest.mark.parametrize("id", ["gymnasium-goals/Taxi-v4", "gymnasium-goals/CliffWalking-v1"])
def test_the_oracle_takes_a_shortest_path(id: str) -> None:
    for index in range(25):
        made, _ = started(id, index)
        table, start = made._env.unwrapped.P, int(made._env.unwrapped.s)
        far, queue = {start: 0}, deque([start])
        while made._cell_of(queue[0]) != made._goal:
            state = queue.popleft()
            for move in range(4):
                ((_, after, _, over),) = table[state][move]
                ends = over and made._cell_of(int(after)) != made._goal
                if int(after) not in far and not ends:
                    far[int(after)] = far[state] + 1
                    queue.append(int(after))
        plan = made.oracle()
        assert len(plan) == far[queue[0]] <= made.spec.typical_turns
        assert [made.step(action).success for action in plan] == [False] * (len(plan) - 1) + [True]


def test_the_walls_that_the_instructions_name_are_the_packages() -> None:
    made, _ = started("gymnasium-goals/Taxi-v4")
    inner = made._env.unwrapped
    between = set()
    for row in range(5):
        for column in range(4):
            ((_, after, _, _),) = inner.P[inner.encode(row, column, 0, 1)][2]  # east
            if made._cell_of(int(after)) == (row, column):
                between.add((row, column))
    assert between == {(0, 1), (1, 1), (3, 0), (4, 0), (3, 2), (4, 2)}
    assert "in rows 0 and 1 between columns 1 and 2; in rows 3" in made.instructions


def test_what_is_no_move_is_answered_in_words() -> None:
    made, _ = started("gymnasium-goals/Taxi-v4")
    for text in ("pickup", "4", ""):
        got = made.step(Action(text))
        assert not got.valid and "south, north, east, west" in got.observation.text


@pytest.mark.parametrize("name", ["Taxi-v4/west", "FrozenLake-v1", "", "Taxi-v4/"])
def test_other_grids_and_regions_are_unknown(name: str) -> None:
    with pytest.raises(UnknownName, match="grid with goals"):
        registry.make(f"gymnasium-goals/{name}")


def test_only_environments_with_goals_state_them() -> None:
    assert registry.states_goals("gymnasium-goals/Taxi-v4/corner?turns=4")
    assert not registry.states_goals("gymnasium/Taxi-v4")
