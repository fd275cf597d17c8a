"""MiniHack: the package's levels in words, and an expert for those that need no fight."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator

import pytest

if importlib.util.find_spec("minihack") is None:  # importing it needs what the adapter does
    pytest.skip("needs minihack, see requirements/nethack.txt", allow_module_level=True)
import gymnasium
import numpy as np
from nle.nethack import Nethack

from palaestra.core.environment import Action, Capability, Transition
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.minihack.environment import MiniHack
from palaestra.environments.families.minihack.oracle import knows
from palaestra.environments.families.nethack.game import SEEN

SOLVED = [name for name in MiniHack.names() if knows(name)]
LONG = ("45x19", "Labyrinth-Big", "N10", "N6", "Dark-S15", "Dark-15x15")  # in the expert's moves


@pytest.fixture
def started() -> Iterator[Callable[..., MiniHack]]:
    """Makes worlds that have a game, and closes them."""
    made: list[MiniHack] = []

    def start(name: str, seed: int = 1) -> MiniHack:
        made.append(MiniHack(name))
        made[-1].reset(task(name, seed))
        return made[-1]

    yield start
    for world in made:
        world.close()


def task(name: str, seed: int = 1) -> Task:
    return Task(f"train/{seed}", f"minihack/{name}", seed)


def act(world: MiniHack, *words: str) -> Transition:
    """The transition of the last of the actions."""
    return [world.step(Action(word)) for word in words][-1]


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["Eat", "KeyRoom-S5", "WoD-Hard-Restricted"])
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    tasks = MiniHack.tasks(f"minihack/{name}")
    clause(Subject(lambda: MiniHack(name), tasks, steps=12, per_split=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", MiniHack.names())
def test_the_contract_holds_on_every_level(name: str) -> None:
    for clause in CLAUSES:
        tasks = MiniHack.tasks(f"minihack/{name}")
        clause(Subject(lambda: MiniHack(name), tasks, steps=20, per_split=1))


# ── the package's levels, unchanged ──────────────────────────────────────────


@pytest.mark.parametrize(
    "id",
    [
        "MiniHack-Room-Ultimate-5x5-v0",
        "MiniHack-KeyRoom-Dark-S5-v0",
        "MiniHack-Freeze-Random-Restricted-v0",
        "MiniHack-Sokoban1a-v1",
        "MiniHack-MultiRoom-N2-Monster-v0",
        "MiniHack-Eat-Distr-v0",
    ],
)
def test_play_is_the_packages_own(id: str, started: Callable[..., MiniHack]) -> None:
    world = started(id.removeprefix("MiniHack-").rpartition("-")[0], 4)
    package = gymnasium.make(id, disable_env_checker=True, fix_moon_phase=True).unwrapped
    if "MultiRoom" in id:
        package.minigrid_env.reset(seed=4)
        Nethack.set_initial_seeds(package.nethack, 4, 4, False)
    else:
        package.seed(core=4, disp=4, reseed=False)
    view, _ = package.reset()
    rng = random.Random(4)
    for _ in range(120):
        word = sample_action(world, rng).text
        (number,) = world._words.meaning(word, world._screen)
        transition = act(world, word)
        view, reward, done, _, info = package.step(number)
        assert transition.valid and transition.reward == reward
        assert (transition.terminated or transition.truncated) == done
        if done:
            assert transition.success == (info["end_status"].name == "TASK_SUCCESSFUL")
            break
        for key in set(SEEN) & set(view):
            assert np.array_equal(view[key], world._game.see(key)), key
        message = bytes(view["message"]).split(b"\0")[0].decode("latin-1").strip()
        assert message in transition.observation.text
    package.close()


def test_the_wrong_arm_of_a_memento_maze_ends_it_without_success(
    started: Callable[..., MiniHack],
) -> None:
    ends = []
    for arm in ("north", "south"):
        last = act(started("Memento-Short-F2"), *["east"] * 7, *[arm] * 3, "east")
        ends.append((last.terminated, last.success, last.reward))
    assert (True, False, -1.0) in ends


def test_death_is_no_success(started: Callable[..., MiniHack]) -> None:
    last = act(started("LavaCross-Full"), "far east", "far east")
    assert last.terminated and not last.success and not last.truncated and last.reward == 0.0


def test_which_levels_there_are() -> None:
    names = MiniHack.names()
    assert len(names) == len(set(names)) >= 110
    assert {"Room-5x5", "Corridor-R2", "Quest-Easy", "Sokoban1a", "LavaCross-Full"} <= set(names)
    for absent in ("Boxoban-Hard", "LavaCrossingS9N1", "Skill-Custom"):
        with pytest.raises(UnknownName):
            MiniHack.spec_of(absent)


def test_the_stand_in_for_a_module_that_setuptools_dropped_is_gone() -> None:
    found = sys.modules.get("pkg_resources")
    assert found is None or found.__spec__ is not None


# ── the expert ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [n for n in SOLVED if not any(long in n for long in LONG)])
def test_the_expert_solves(name: str, started: Callable[..., MiniHack]) -> None:
    _solve(started(name, 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVED)
def test_the_expert_solves_twelve_tasks_of_each_level(
    name: str, started: Callable[..., MiniHack]
) -> None:
    world = started(name)
    for seed in range(100, 112):
        world.reset(task(name, seed))
        _solve(world)


def _solve(world: MiniHack) -> None:
    steps = [world.step(action) for action in world.oracle()]
    assert steps and all(step.valid for step in steps)
    assert steps[-1].success and steps[-1].reward > 0.9


def test_where_a_potion_holds_a_ghost_the_expert_has_no_plan(
    started: Callable[..., MiniHack],
) -> None:
    assert started("Levitate-Potion-Full", 92).oracle() == []


def test_a_level_without_an_expert_does_not_claim_one(started: Callable[..., MiniHack]) -> None:
    world = started("Quest-Hard")
    assert Capability.ORACLE not in world.spec.capabilities
    assert Capability.ORACLE in started("Room-5x5").spec.capabilities
    with pytest.raises(CapabilityMissing):
        world.oracle()


# ── what the agent reads and says ────────────────────────────────────────────


def test_the_first_words_are_the_goal_and_what_is_there(started: Callable[..., MiniHack]) -> None:
    text = started("Room-5x5").reset(task("Room-5x5")).text
    assert text == (
        "Goal: Stand on the staircase down.\n"
        "Hello Agent, welcome to NetHack!  You are a chaotic male human Rogue.\n"
        "Free steps: east 4, southeast 4, south 4.\n"
        "Seen: staircase down 4 south 4 east.\n"
        "You: HP 12/12."
    )


def test_a_thing_is_used_by_its_letter_or_its_name(started: Callable[..., MiniHack]) -> None:
    for answer in ("f", "robe"):
        world = started("Wear-Fixed")
        asked = act(world, "northwest", "northwest", "pick up", "wear").observation.text
        assert asked.startswith("What do you want to wear? [f or ?*]")
        assert world.admissible() == ["f", "more", "esc"]
        assert act(world, answer).success


def test_what_is_carried_is_reported_when_it_changes_and_when_it_is_asked_for(
    started: Callable[..., MiniHack],
) -> None:
    world = started("Wear-Fixed")
    shown = [act(world, w).observation.text for w in ("northwest", "northwest", "pickup", "wear")]
    assert ["Inventory" in text for text in shown] == [False, False, True, True]
    assert "Inventory" not in started("Room-5x5").reset(task("Room-5x5")).text


def test_a_snapshot_of_another_level_is_refused(started: Callable[..., MiniHack]) -> None:
    with pytest.raises(InputError, match="Room-5x5"):
        started("Eat").restore(started("Room-5x5").snapshot())


def test_instructions_are_short_and_name_the_goal(started: Callable[..., MiniHack]) -> None:
    for name in ("Room-5x5", "Eat", "Sokoban1a", "Memento-F4", "Quest-Easy"):
        world = started(name)
        assert world.goal in world.instructions and len(world.instructions.split()) <= 120
        limit = world._game.limit
        assert world.spec.typical_turns == max(20, min(500, limit // 2))
