"""The grid of boxes keeps the contract; its rounds are computed by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.environment import Action
from palaestra.core.rare_capabilities import acting_in
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.boxes.environment import Boxes
from palaestra.environments.families.boxes.rules import ROOM, Grid, Move, State
from palaestra.environments.families.boxes.solver import best_round, solve
from palaestra.environments.registry import tasks


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "id", ["boxes/2", "boxes/5", "boxes/3:each", "boxes/4:near", "boxes/3:cell"]
)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


def begun(name: str, boxes: dict[str, int], goals: dict[str, int]) -> Boxes:
    """An environment in which boxes and goals stand in these cells."""
    world = Boxes(name)
    world.reset(tasks(f"boxes/{name}").task(Split.TRAIN, 0))
    world._state = State(world._grid, boxes, goals)
    world._total = len(boxes)
    return world


def test_cells_stand_in_reading_order() -> None:
    assert Grid(3).neighbours(1) == {"east": 2, "west": 0}
    assert Grid(5).neighbours(1) == {"east": 2, "south": 4, "west": 0}
    assert Grid(5).neighbours(2) == {"west": 1}  # the last row is shorter
    assert Grid(8).distance(0, 7) == 4


def test_two_arms_at_one_border_collide_and_a_chain_of_moves_does_not() -> None:
    state = State(Grid(3), {"A": 0, "B": 1}, {"A": 1, "B": 0})
    both = {0: Move("A", "east"), 1: Move("B", "west")}
    assert state.collisions(both).keys() == {0, 1} and state.after(both) == state
    assert state.after({0: Move("A", "east"), 1: Move("B", "east")}).boxes == {"A": 1, "B": 2}


def test_a_full_cell_takes_a_box_only_if_another_one_leaves_it() -> None:
    boxes = {"A": 0, "B": 1, "C": 1, "D": 2, "E": 2}
    state = State(Grid(3), boxes, {"A": 2, "B": 1, "C": 2, "D": 0, "E": 0})
    into = {0: Move("A", "east")}
    assert state.collisions(into).keys() == {0}
    assert state.collisions({**into, 1: Move("B", "goal")}) == {}
    stays = {**into, 1: Move("C", "east")}  # which finds no room, so A does not either
    assert state.collisions(stays).keys() == {0, 1}


def test_boxes_that_block_each_other_make_room() -> None:
    boxes = {"A": 0, "B": 0, "C": 1, "D": 1}  # all four want to the other end of three cells
    state = State(Grid(3), boxes, {"A": 2, "B": 2, "C": 0, "D": 0})
    assert best_round(state) != {}
    assert solve(state)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_no_round_loses_a_box_or_overfills_a_cell(n: int, index: int, rng: object) -> None:
    world = Boxes(str(n))
    world.reset(tasks(f"boxes/{n}").task(Split.TRAIN, index))
    for _ in range(6):
        before = world._state
        if world.step(world.sample_action(rng)).terminated:  # type: ignore[arg-type]
            break
        after = world._state
        assert all(len(after.within(cell)) <= ROOM for cell in range(n))
        home = before.boxes.keys() - after.boxes.keys()
        assert all(before.boxes[box] == before.goals[box] for box in home)
        moved = [box for box in after.boxes if after.boxes[box] != before.boxes[box]]
        assert all(before.grid.distance(before.boxes[b], after.boxes[b]) == 1 for b in moved)


def test_what_cannot_be_done_is_refused_in_words_and_takes_no_round() -> None:
    world = begun("4", {"A": 0, "B": 3}, {"A": 3, "B": 3})
    for plan, reason in {
        "": "The plan is empty; write robot1: wait.",
        "box A east": "'' is no robot; write robot1 to robot4, a colon and a move.",
        "robot9: wait": "'robot9' is no robot; write robot1 to robot4, a colon and a move.",
        "robot1: wait; robot1: wait": "robot1 has two moves in the plan; leave one.",
        "robot2: box A south": "robot2 cannot move box A: it is not in its cell.",
        "robot1: box A west": "No cell is west of robot1.",
        "robot1: box A goal": "The goal of box A is not in the cell of robot1.",
    }.items():
        refused = world.step(Action(plan))
        assert (refused.valid, refused.observation.text) == (False, reason)
    done = world.step(Action("robot1: Move box a to the east."))
    assert done.valid and "robot1 moved box A east." in done.observation.text


def test_robots_act_together_see_what_is_near_and_share_the_reward() -> None:
    world = begun("4:near", {"A": 0, "B": 3}, {"A": 1, "B": 3})
    assert "robot4:" not in world.observe("robot1").text
    world.step(Action("box A east"))
    assert acting_in(world) == ("robot2", "robot3", "robot4")
    assert "moved" not in world.observe("robot2").text
    for move in ("wait", "wait", "box B goal"):
        last = world.step(Action(move))
    assert last.rewards == dict.fromkeys(world.spec.players, 0.5)
    assert "robot1 moved box A east." in world.observe("robot3").text
    assert "robot4 brought box B home." not in world.observe("robot1").text


def test_all_forms_have_the_same_tasks() -> None:
    states = []
    for name in ("6", "6:each", "6:near"):
        world = Boxes(name)
        world.reset(tasks(f"boxes/{name}").task(Split.TEST, 5))
        states.append(world._state)
    assert states[0] == states[1] == states[2]
