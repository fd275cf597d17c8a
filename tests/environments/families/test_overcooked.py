"""Kitchens keep the contract and the package's rules; orders and words are computed by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palaestra as pa
from palaestra.core.environment import Action, Capability, Transition
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.registry import tasks

pytest.importorskip("overcooked_ai_py", reason="needs requirements/overcooked.txt")

from overcooked_ai_py.mdp.overcooked_mdp import OvercookedGridworld, OvercookedState

from palaestra.environments.families.overcooked.environment import EACH, Overcooked
from palaestra.environments.families.overcooked.kitchen import LAYOUTS, MOVES, Kitchen
from palaestra.environments.families.overcooked.orders import NAMES, Orders


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "name", ["cramped_room-1", "forced_coordination-1:each", "cramped_room-4-every-20:each"]
)
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"overcooked/{name}", per_split=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", Overcooked.names())
def test_the_contract_holds_in_every_kitchen(name: str) -> None:
    for clause in CLAUSES:
        clause(Subject.of(f"overcooked/{name}", per_split=1))


def task(name: str, index: int = 0) -> Task:
    return tasks(f"overcooked/{name}").task(Split.TRAIN, index)


def begun(name: str, index: int = 0) -> Overcooked:
    world = Overcooked(name)
    world.reset(task(name, index))
    return world


def standard(name: str) -> Overcooked:
    """An environment whose cooks stand where the layout of the package has them."""
    world = begun(name)
    world._kitchen.state = world._kitchen.rules.get_standard_start_state()
    return world


def act(world: Overcooked, *actions: str) -> Transition:
    for action in actions:
        last = world.step(Action(action))
        assert last.valid, last.observation.text
    return last


def lines(world: Overcooked) -> list[str]:
    return world.observe(world.spec.players[0]).text.split("\n")


# ── the package's kitchens ───────────────────────────────────────────────────


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_is_the_package_s(layout: str) -> None:
    world, rng = begun(f"{layout}-4"), random.Random(layout)
    package = OvercookedGridworld.from_layout_name(layout)
    state = OvercookedState.from_player_positions(
        world._kitchen.state.player_positions, all_orders=package.start_all_orders
    )
    for _ in range(300):
        moves = rng.choices(list(MOVES), k=2)
        state, _ = package.get_state_transition(state, tuple(MOVES[move] for move in moves))
        act(world, f"cook1: {moves[0]}; cook2: {moves[1]}")
        assert world._kitchen.state == state


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cooks_start_where_they_can_walk_to_from_their_own_places(layout: str) -> None:
    kitchen, seen = Kitchen(layout), set()
    for seed in range(60):
        kitchen.start(random.Random(seed))
        first, second = kitchen.state.player_positions
        assert first != second
        seen.add((first, second))
        if layout == "forced_coordination":
            assert (first[0], second[0]) == (3, 1)  # on the two sides of the wall
    assert len(seen) > 5


@given(st.integers(0, 10**6), st.lists(st.tuples(*[st.sampled_from(list(MOVES))] * 2), max_size=60))
@settings(max_examples=30, deadline=None)
def test_a_kitchen_that_was_saved_goes_on_as_the_first(
    seed: int, moves: list[tuple[str, str]]
) -> None:
    first, second = Kitchen("cramped_room"), Kitchen("cramped_room")
    first.start(random.Random(seed))
    for pair in moves:
        second.load(first.dump())
        assert second.dump() == first.dump()
        assert second.step(pair) == first.step(pair)
        assert second.dump() == first.dump() and second.describe() == first.describe()


# ── orders ───────────────────────────────────────────────────────────────────


def test_orders_are_due_as_their_names_say() -> None:
    at_once, by_load = Orders.named("2"), Orders.named("4-every-40")
    assert (at_once.horizon, at_once.due(0), at_once.open(1, ())) == (200, 200, [0, 1])
    assert [by_load.due(order) for order in range(4)] == [100, 140, 180, 220]
    assert by_load.horizon == 220
    assert by_load.open(40, ()) == [0] and by_load.open(41, ()) == [0, 1]
    assert by_load.open(100, ()) == [0, 1, 2] and by_load.open(101, ()) == [1, 2]
    assert by_load.late(99, ()) == 0 and by_load.late(140, {0}) == 1
    assert by_load.closed(220, {0, 3}) and not by_load.closed(219, {0})


@given(st.sampled_from(NAMES), st.lists(st.booleans(), max_size=450))
def test_no_order_is_delivered_before_it_arrives_or_after_it_is_due(
    name: str, served: list[bool]
) -> None:
    orders, done = Orders.named(name), set[int]()
    for step, serves in enumerate(served, 1):
        new = orders.open(step, done)[:serves]
        assert all(order * orders.every < step <= orders.due(order) for order in new)
        assert done.isdisjoint(new)
        done.update(new)
        assert len(done) + orders.late(step, done) <= orders.count
        assert orders.closed(step, done) or step < orders.horizon


def test_orders_that_are_late_are_lost_and_the_others_count() -> None:
    world = begun("cramped_room-2")
    total, delivered = 0.0, False
    for action in world.oracle():
        step = world.step(action)
        total += step.reward
        if step.reward:
            delivered = True
            break
    assert delivered and total == world.progress() == 0.5
    while not (step.terminated or step.truncated):
        step = act(world, "cook1: stay")
        total += step.reward
    assert total == 0.5 and step.truncated and not step.success
    assert world._kitchen.steps == 200
    last = "The kitchen is closed after 200 steps: 1 of 2 orders delivered, 1 too late."
    assert lines(world)[0] == last


# ── one dispatcher, or a player per cook ─────────────────────────────────────


def test_both_forms_are_the_same_kitchen() -> None:
    one, each, rng = begun("cramped_room-1"), begun(f"cramped_room-1{EACH}"), random.Random(0)
    for _ in range(60):
        first, second = rng.choices(list(MOVES), k=2)
        act(one, f"cook2: {second}; cook1: {first}")
        act(each, first, second)
        assert one.save_round() == each.save_round()


@pytest.mark.parametrize("form", ["", EACH])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_planner_delivers_in_every_layout(layout: str, form: str) -> None:
    for index in range(3):
        world = begun(f"{layout}-1{form}", index)
        plan = world.oracle()
        last = act(world, *(action.text for action in plan))
        assert last.success and last.reward == 1.0 and set(last.rewards.values()) == {1.0}
        assert len(plan) <= world.spec.typical_turns


def test_the_planner_goes_on_from_a_pending_move_of_another_kind() -> None:
    world = begun(f"cramped_room-1{EACH}")
    plan = [action.text for action in world.oracle()]
    other = next(move for move in MOVES if move not in (plan[0], "interact"))
    act(world, other)
    assert act(world, *(action.text for action in world.oracle())).success


def test_heavy_loads_have_no_oracle() -> None:
    assert Capability.ORACLE in Overcooked.spec_of("cramped_room-4-every-80").capabilities
    with pytest.raises(CapabilityMissing):
        begun("cramped_room-4-every-20").oracle()


@pytest.mark.parametrize(
    ("form", "text", "reason"),
    [
        ("", "", "The plan is empty; write cook1: stay."),
        ("", "cook3: east", "'cook3' is no cook; write cook1 or cook2, and a move."),
        ("", "cook1: east; cook1: west", "cook1 has two moves; leave one."),
        ("", "cook1: jump", "'jump' is no move; write one of these: north, south,"),
        (EACH, "cook1: east", "'cook1: east' is no move; write one of these: north, south,"),
    ],
)
def test_what_is_no_move_is_said_in_words(form: str, text: str, reason: str) -> None:
    world = begun(f"cramped_room-1{form}")
    before = world.state_key()
    result = world.step(Action(text))
    assert not result.valid and result.observation.text.startswith(reason)
    assert world.state_key() == before


def test_a_task_has_no_parameters() -> None:
    with pytest.raises(InputError, match="choose a kitchen by its name"):
        Overcooked("cramped_room-1").reset(replace(task("cramped_room-1"), parameters={"n": 2}))


# ── words ────────────────────────────────────────────────────────────────────


def test_a_kitchen_is_described_in_words() -> None:
    """Cramped room: XXPXX / O  2O / X1  X / XDXSX."""
    world = standard("cramped_room-1")
    assert "the onions: (0, 1), (4, 1)\nthe dishes: (1, 3)\na pot: (2, 0)\n" in world.instructions
    assert lines(world) == [
        "Step 1 of 100: 0 of 1 orders delivered, 0 too late; open: 1, due by step 100.",
        "cook1 at (1, 2) faces north, to floor at (1, 1), and holds nothing.",
        "cook2 at (3, 1) faces north, to a counter at (3, 0), and holds nothing.",
        "The pot at (2, 0) is empty.",
        "On counters: nothing.",
    ]
    act(world, "cook1: south; cook2: east", "cook1: interact; cook2: interact")
    act(world, "cook1: west; cook2: west", "cook1: interact; cook2: north", "cook2: interact")
    assert lines(world) == [
        "Step 6 of 100: 0 of 1 orders delivered, 0 too late; open: 1, due by step 100.",
        "cook1 at (1, 2) faces west, to a counter at (0, 2), and holds nothing.",
        "cook2 at (2, 1) faces north, to a pot at (2, 0), and holds nothing.",
        "The pot at (2, 0) has 1 of 3 onions and does not cook.",
        "On counters: a dish at (0, 2).",
    ]
    act(world, "cook2: interact")
    assert lines(world)[3] == "The pot at (2, 0) cooks a soup of 1 onion, ready in 19 steps."
    act(world, *["cook1: stay"] * 19)
    assert lines(world)[3] == "The pot at (2, 0) has a soup of 1 onion that is ready."


def test_moves_without_effect_are_said() -> None:
    world = standard("cramped_room-1")  # cook1 faces floor, cook2 a counter
    act(world, "cook1: interact; cook2: north")
    assert lines(world)[-2:] == [
        "The move of cook1 had no effect.",
        "The move of cook2 had no effect.",
    ]
    act(world, "cook1: east")
    assert lines(world)[-1] == "On counters: nothing."


# ── from outside ─────────────────────────────────────────────────────────────


def test_cooks_that_are_players_are_evaluated() -> None:
    found = pa.evaluate(
        "overcooked/cramped_room-1:each",
        agent="players",
        model="expert",
        n=2,
        workers=0,
        progress=False,
    )
    assert found.success == 1.0
