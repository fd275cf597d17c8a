"""Crafter satisfies the contract, equals the package's world, and describes its picture."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from palaestra.core.environment import Action, Capability, Transition
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.conformance.clauses import CLAUSES, Subject

crafter = pytest.importorskip("crafter")

import numpy as np  # noqa: E402
from crafter import constants, objects  # noqa: E402

from palaestra.environments.families.crafter import text as crafter_text  # noqa: E402
from palaestra.environments.families.crafter.environment import FULL, TURNS, WORDS, Crafter, parse  # noqa: E402
from palaestra.environments.families.crafter.world import Repeatable, fresh  # noqa: E402
from tests.chosen import mostly_slow, without  # noqa: E402

QUICK = (
    "collect_wood place_table make_wood_pickaxe make_wood_sword collect_sapling place_plant "
    "collect_drink eat_cow collect_stone place_stone make_stone_pickaxe collect_coal wake_up"
).split()


@pytest.mark.slow
@pytest.mark.parametrize(
    "clause", without(CLAUSES, "equal_tasks_give_equal_worlds"), ids=lambda clause: clause.__name__
)
@pytest.mark.parametrize("name", mostly_slow(["collect_wood", "place_table", FULL], "place_table"))
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject(lambda: Crafter(name), TaskSet(f"crafter/{name}"), steps=15, per_split=1))


def task(index: int = 0, split: Split = Split.TRAIN) -> Task:
    return TaskSet("crafter/full").task(split, index)


def world(name: str = FULL, index: int = 0) -> Crafter:
    made = Crafter(name)
    made.reset(task(index))
    return made


def act(of: Crafter, words: Iterable[str]) -> list[Transition]:
    """Do the actions until they or the episode end."""
    result = []
    for word in words:
        result.append(of.step(Action(word)))
        if result[-1].terminated or result[-1].truncated:
            break
    return result


def random_actions(seed: int, steps: int, words: Iterable[str] = tuple(WORDS)) -> list[str]:
    rng = random.Random(seed)
    return rng.choices(list(words), k=steps)


# ── the package's own world ──────────────────────────────────────────────────


def in_order(env: Any) -> Any:
    """Return the package's environment, with its creatures passed in order of position."""
    balance = env._balance_chunk
    env._balance_chunk = lambda chunk, objs: balance(
        chunk, sorted(objs, key=lambda thing: tuple(thing.pos))
    )
    return env


@pytest.mark.parametrize("index", mostly_slow([0, 1], 0))
def test_rewards_ends_and_pictures_are_the_package_s(index: int) -> None:
    ours = world(FULL, index)
    theirs = in_order(crafter.Env(seed=task(index).seed))
    assert (theirs.reset() == ours.native()["image"]).all()
    before: set[str] = set()
    for word in random_actions(index, 400):
        picture, reward, done, info = theirs.step(WORDS[word])
        result = ours.step(Action(word))
        assert result.reward == reward
        assert (result.terminated or result.truncated) == done
        assert result.terminated == (info["discount"] == 0)
        assert (picture == ours.native()["image"]).all()
        unlocked = {name for name, count in info["achievements"].items() if count}
        assert set(result.info.get("unlocked", ())) == unlocked - before
        assert ours.progress() == len(unlocked) / 22
        before = unlocked
        if done:
            break
    assert before


def test_until_creatures_are_first_balanced_it_is_the_unchanged_package() -> None:
    ours, theirs = world(FULL, 2), crafter.Env(seed=task(2).seed)
    assert (theirs.reset() == ours.native()["image"]).all()
    for word in random_actions(2, 9):
        picture, reward, _, _ = theirs.step(WORDS[word])
        assert ours.step(Action(word)).reward == reward
        assert (picture == ours.native()["image"]).all()


def test_the_package_removes_creatures_by_the_order_of_a_set_and_we_do_not() -> None:
    """Check that the same random number removes another creature in another order."""

    def survivors(order: Callable[[list[Any]], list[Any]], of: type[Any]) -> list[tuple[int, int]]:
        env = of(seed=0)
        env.load(fresh(0)) if of is Repeatable else env.reset()
        env._world.daylight = 1.0
        chunk = (0, 12, 0, 12)
        env._world._mat_map[0:12, 0:12] = env._world._mat_ids["grass"]
        herd = [objects.Cow(env._world, (x, 1)) for x in range(8)]
        for cow in herd:
            env._world.add(cow)
        env._world.random.seed(3)
        for _ in range(60):
            alive = [cow for cow in herd if not cow.removed]
            env._balance_chunk(chunk, order(alive))
        return [tuple(map(int, cow.pos)) for cow in herd if not cow.removed]

    def turned(cows: list[Any]) -> list[Any]:
        return cows[::-1]

    assert survivors(list, crafter.Env) != survivors(turned, crafter.Env)
    assert survivors(list, Repeatable) == survivors(turned, Repeatable)


def test_its_limit_is_ten_thousand_steps_and_truncates() -> None:
    some = world()
    env: Any = some._env
    assert env._length == 10_000
    env._length = 3  # for this test
    last = act(some, ["noop"] * 3)[-1]
    assert last.truncated and not last.terminated and not last.success
    after = some.step(Action("noop"))
    assert not after.valid and after.reward == 0


def test_death_terminates_without_success() -> None:
    some = world()
    env: Any = some._env
    env.player.health = 1
    env.player.inventory.update(food=0, drink=0, energy=0)
    last = act(some, ["noop"] * 40)[-1]
    assert last.terminated and not last.truncated and not last.success
    assert last.observation.text.endswith("You died.")
    assert last.reward == pytest.approx(-0.1)


def test_success_on_the_last_step_is_no_truncation() -> None:
    some = world("collect_wood")
    plan = some.oracle()
    env: Any = some._env
    env._length = len(plan)
    last = act(some, [action.text for action in plan])[-1]
    assert last.success and last.terminated and not last.truncated


# ── goals ────────────────────────────────────────────────────────────────────


def test_there_is_a_world_for_each_published_achievement() -> None:
    assert Crafter.names() == [FULL, *constants.achievements]
    assert len(constants.achievements) == 22
    assert sorted(name for names in TURNS.values() for name in names) == sorted(Crafter.names())
    for name in Crafter.names():
        assert Crafter(name).spec.typical_turns in TURNS
        assert (Capability.ORACLE in Crafter.spec_of(name).capabilities) == (name != FULL)


def test_a_goal_ends_with_its_achievement_and_rewards_stay_the_package_s() -> None:
    some, whole = world("place_table"), world(FULL)
    plan = [action.text for action in some.oracle()]
    result, beside = act(some, plan), act(whole, plan)
    assert [step.reward for step in result] == [step.reward for step in beside]
    assert [step.reward for step in result if step.reward] == [1.0, 1.0]  # wood, and the table
    assert [step.success for step in result] == [False] * (len(plan) - 1) + [True]
    assert result[-1].observation.text.startswith("Achieved: place table.\n")
    assert result[-1].info == {"unlocked": ["place_table"]}
    assert some.progress() == 1 and some.oracle() == [] and some.admissible() == []
    assert not beside[-1].terminated and whole.progress() == 2 / 22


def test_the_whole_is_solved_by_all_22_achievements() -> None:
    some = world(FULL)
    env: Any = some._env
    for name in constants.achievements:
        assert some.progress() < 1
        env.player.achievements[name] = 1  # as if it were done
        last = some.step(Action("noop"))
        assert last.success == last.terminated == (name == constants.achievements[-1])
    assert some.progress() == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_scripted_player_unlocks_what_is_near(name: str) -> None:
    for index in range(2):
        some = world(name, index)
        plan = some.oracle()
        assert 0 < len(plan) <= some.spec.typical_turns
        assert act(some, [action.text for action in plan])[-1].success


@pytest.mark.slow
@pytest.mark.parametrize("name", constants.achievements)
def test_the_scripted_player_knows_a_way_to_most_of_all(name: str) -> None:
    solved = 0
    for index in range(6):
        some = world(name, index)
        plan = some.oracle()
        solved += bool(plan)
        assert not plan or act(some, [action.text for action in plan])[-1].success
    assert solved >= 4


def test_the_whole_has_no_oracle() -> None:
    with pytest.raises(CapabilityMissing):
        world(FULL).oracle()


# ── words ────────────────────────────────────────────────────────────────────


def test_what_is_reported_is_what_the_picture_shows() -> None:
    """Compare with the package's own semantic map, cut to the view."""
    kinds = ["", *constants.materials, "player", "cow", "zombie", "skeleton", "arrow", "plant"]
    some = world(FULL, 1)
    env: Any = some._env
    for word in random_actions(1, 150, [*list(WORDS)[:6], "noop"]):
        result = some.step(Action(word))
        if result.terminated:
            break
        around, view, state = result.observation.text.split("\n")[-3:]
        x, y = map(int, env.player.pos)
        shown = {
            (i, j): kinds[env._sem_view()[x + i, y + j]]
            for i in range(-4, 5)
            for j in range(-3, 4)
            if (i, j) != (0, 0) and 0 <= x + i < 64 and 0 <= y + j < 64
        }
        count: Counter[str] = Counter()
        for part in view.removeprefix("In view: ").rstrip(".").split(", "):
            words, _, number = part.partition(" (")
            kind, *offset = words.replace("ripe ", "").split(" ")
            if kind == "arrow":
                offset = offset[2:]  # "flying left"
            steps = dict(zip(offset[1::2], map(int, offset[::2]), strict=True))
            place = (
                steps.get("right", 0) - steps.get("left", 0),
                steps.get("down", 0) - steps.get("up", 0),
            )
            assert shown[place] == kind
            count[kind] += int(number.rstrip(")")) if number else 1
            if number:
                far = abs(place[0]) + abs(place[1])
                assert all(abs(i) + abs(j) >= far for (i, j), k in shown.items() if k == kind)
        assert count == Counter(shown.values())
        beside = around.removeprefix("Beside you: ").split(".")[0].split(", ")
        directions = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
        for side, kind in (part.split(" ", 1) for part in beside):
            assert kind.split(" ")[0] in (shown[directions[side]], "ripe")
        for name, amount in env.player.inventory.items():
            if name in crafter_text.VITAL:
                assert f"{name} {amount}" in state.lower()
            else:
                assert (f"{amount} {name.replace('_', ' ')}" in state) == (amount > 0)


def test_sleep_night_and_the_edge_of_the_world_are_reported() -> None:
    some = world()
    env: Any = some._env
    env.player.inventory["energy"] = 3
    result = act(some, ["sleep"])[-1]
    assert "You are asleep." in result.observation.text and some.admissible() == ["noop"]
    env.player.sleeping = False
    env._step = 200
    assert "It is dark." in act(some, ["noop"])[-1].observation.text
    env.world.move(env.player, (0, 0))
    text = act(some, ["noop"])[-1].observation.text
    assert "left nothing" in text and "up nothing" in text


def test_creatures_plants_and_arrows_are_reported_as_they_are_drawn() -> None:
    some = world()
    env: Any = some._env
    x, y = map(int, env.player.pos)
    env.world[x + 1, y] = env.world[x - 1, y] = "grass"
    plant = objects.Plant(env.world, (x + 1, y))
    env.world.add(plant)
    env.world.add(objects.Arrow(env.world, (x - 1, y), (1, 0)))
    reply = crafter_text.describe(env)
    assert "left arrow flying right, right plant," in reply
    assert "In view: arrow flying right 1 left, plant 1 right," in reply
    plant.grown = 301
    assert "right ripe plant" in crafter_text.describe(env)


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("move left", "move left"),
        ("move_left", "move left"),
        (" Left.\n", "move left"),
        ("`make wood pickaxe`", "make wood pickaxe"),
        ("DO", "do"),
        ("wait", "noop"),
        ("do\nbecause there is a tree", "do"),
        ("move left move left", None),
        ("fly", None),
        ("", None),
        ("\n\n", None),
    ],
)
def test_what_counts_as_an_action(reply: str, meant: str | None) -> None:
    assert parse(reply) == meant


def test_instructions_name_what_the_goal_needs_and_nothing_else() -> None:
    assert "Rules" not in Crafter("collect_wood").instructions
    result = Crafter("make_stone_pickaxe").instructions
    assert "make stone pickaxe needs 1 wood, 1 stone, a table near you;" in result
    assert "place table needs" in result and "collect stone needs the wood pickaxe" in result
    assert "iron" not in result.partition("Reply")[0]
    assert len(Crafter(FULL).instructions) < 1600


def test_what_is_reported_to_do_something_does_and_nothing_else_is_made_or_placed() -> None:
    some = world("make_stone_pickaxe", 3)
    rng = random.Random(0)
    scratch = Crafter("make_stone_pickaxe")
    for action in some.oracle()[:-1]:
        here, env = some.snapshot(), some._env
        assert env is not None
        sensible = some.admissible()
        made = [word for word in WORDS if word.startswith(("make", "place"))]
        for word in rng.sample(made, 3):
            scratch.restore(here)
            other: Any = scratch._env
            before = dict(other.player.inventory)
            scratch.step(Action(word))
            items = [name for name in before if name not in crafter_text.VITAL]
            changed = any(before[name] != other.player.inventory[name] for name in items)
            assert changed == (word in sensible), word
        some.step(action)


# ── state ────────────────────────────────────────────────────────────────────


def test_a_snapshot_at_night_goes_on_with_the_same_pictures() -> None:
    """Drawing darkness uses the random generator that moves the creatures."""
    some, other = world(), Crafter(FULL)
    env: Any = some._env
    env._step = 190
    act(some, ["noop"] * 3)
    other.restore(some.snapshot())
    assert (other.native()["image"] == some.native()["image"]).all()
    for word in random_actions(5, 30):
        assert other.step(Action(word)) == some.step(Action(word))
        assert (other.native()["image"] == some.native()["image"]).all()
        assert other.state_key() == some.state_key()


def test_an_action_that_changes_nothing_leads_to_the_same_state_as_waiting() -> None:
    one, other = world(), world()
    act(one, ["make iron sword", "noop"])
    act(other, ["noop", "place table"])
    assert one.state_key() == other.state_key()
    act(one, ["move left"])
    act(other, ["move right"])
    assert one.state_key() != other.state_key()
    assert one.state_key() != world(FULL, 1).state_key()


def test_worlds_of_one_seed_are_kept_and_never_shared() -> None:
    one, other = world(), world()
    before = other.native()["image"].copy()
    act(one, random_actions(0, 50))
    assert (other.native()["image"] == before).all()
    assert (world().native()["image"] == before).all()


def test_native_is_the_package_s_picture() -> None:
    picture = world().native()["image"]
    assert picture.shape == (64, 64, 3) and picture.dtype == np.uint8


# ── bad input ────────────────────────────────────────────────────────────────


def test_a_misspelt_goal_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'collect_wood'"):
        Crafter("colect_wood")


def test_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="take no parameters"):
        Crafter(FULL).reset(Task("t", "crafter/full", 0, parameters={"area": 9}))


def test_a_snapshot_of_another_goal_is_refused() -> None:
    with pytest.raises(InputError, match="snapshot of 'crafter/full'"):
        Crafter("eat_cow").restore(world(FULL).snapshot())


def test_a_world_without_a_task_reports_it() -> None:
    with pytest.raises(InputError, match="call reset"):
        Crafter(FULL).step(Action("noop"))
