"""BabyAI and MiniGrid satisfy the contract, and describe what is in view."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from palaestra.core.environment import Action, Capability
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.oracle_clauses import the_oracle_leads_on
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.babyai.environment import BabyAI, MiniGrid, parse
from palaestra.environments.families.babyai.turns import TURNS
from tests.chosen import mostly_slow

WORDS = ("left", "right", "forward", "forward", "forward", "pickup", "drop", "toggle")
IDS = (
    "babyai/GoToLocalS5N2",
    "babyai/GoToLocal",
    "babyai/GoToSeqS5R2",
    "babyai/PickupLoc",
    "babyai/OpenDoorsOrderN4",
    "babyai/PutNextLocal",
    "babyai/UnlockLocal",
    "minigrid/Empty-5x5",
    "minigrid/DoorKey-6x6",
    "minigrid/LavaGapS5",
    "minigrid/FourRooms",
)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("id", mostly_slow(IDS, "babyai/PickupLoc", "minigrid/DoorKey-6x6"))
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


def world(id: str, index: int = 0) -> MiniGrid:
    made = registry.make(id)
    assert isinstance(made, MiniGrid)
    made.reset(registry.tasks(id).task(Split.TRAIN, index))
    return made


def test_four_turns_lead_back_to_the_same_state_and_fewer_do_not() -> None:
    empty = world("minigrid/Empty-5x5")
    keys = [empty.state_key()]
    for _ in range(4):
        empty.step(Action("left"))
        keys.append(empty.state_key())
    assert keys[0] == keys[4] and len(set(keys)) == 4


def test_what_is_carried_and_which_door_is_open_are_part_of_the_state() -> None:
    room = world("babyai/UnlockLocal")
    keys, words = [room.state_key()], []
    for action in room.oracle():
        words.append(action.text)
        room.step(action)
        keys.append(room.state_key())
    assert {"pickup", "toggle"} <= set(words)
    assert all(
        before != after
        for before, word, after in zip(keys, words, keys[1:], strict=False)
        if word in ("pickup", "toggle")
    )


def test_the_first_words_are_the_mission_and_what_is_in_view() -> None:
    room = registry.make("babyai/GoToLocalS5N2")
    task = registry.tasks("babyai/GoToLocalS5N2").task(Split.TRAIN, 0)
    mission, view = room.reset(task).text.split("\n")
    assert mission.startswith("Mission: go to")
    assert view


def test_success_on_the_very_last_step_is_success_and_no_truncation() -> None:
    room = world("babyai/GoToLocalS5N2")
    plan = room.oracle()
    room._env.max_steps = len(plan)  # the level's own limit, for this test just enough
    last = [room.step(action) for action in plan][-1]
    assert last.success and last.terminated and not last.truncated


def test_the_levels_own_limit_truncates() -> None:
    room = world("babyai/GoToLocalS5N2")
    room._env.max_steps = 3
    last = [room.step(Action("drop")) for _ in range(3)][-1]
    assert last.truncated and not last.terminated and not last.success


@pytest.mark.parametrize("id", ["babyai/GoToObjS6", "babyai/GoToSeqS5R2", "babyai/PutNextLocal"])
def test_privileged_numbers_say_where_the_agent_and_its_goal_are(id: str) -> None:
    for index in range(4):
        room = world(id, index)
        x, y, *facing, carries, _, _ = room.privileged_state()
        assert len(room.privileged_state()) == len(room.spec.privileged)
        assert 0 < x < 1 and 0 < y < 1 and sum(facing) == 1 and carries == 0
        room.step(Action("left"))
        turned = room.privileged_state()
        assert turned[:2] == [x, y] and turned[2:6] == [*facing[1:], facing[0]]


def test_the_goal_lies_ahead_once_the_expert_has_reached_it() -> None:
    for index in range(4):
        room = world("babyai/GoToObjS6", index)
        distances = []
        for action in room.oracle():
            ahead, right = room.privileged_state()[-2:]
            distances.append(abs(ahead) + abs(right))
            room.step(action)
        assert room.privileged_state()[-2:] == pytest.approx([1 / 6, 0])
        assert distances == sorted(distances, reverse=True)  # it never leads away


def test_a_part_that_is_done_is_no_goal_any_more() -> None:
    changed = 0
    for index in range(4):
        room = world("babyai/GoToSeqS5R2", index)
        for action in room.oracle():
            before, done = room.privileged_state()[-2:], room.progress()
            room.step(action)
            if done < room.progress() < 1:
                changed += room.privileged_state()[-2:] != before
    assert changed


def test_progress_counts_the_parts_of_a_mission() -> None:
    seen = set()
    for index in range(8):
        room = world("babyai/GoToSeqS5R2", index)
        for action in room.oracle():
            room.step(action)
            seen.add(room.progress())
    assert {0.0, 1.0} < seen


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("forward", "forward"),
        (" Forward.\n", "forward"),
        ("TURN LEFT", "left"),
        ("pick up", "pickup"),
        ("`toggle`", "toggle"),
        ("left\nbecause the ball is there", "left"),
        ("go home", None),
        ("left right", None),
        ("", None),
        ("\n\n", None),
    ],
)
def test_what_counts_as_an_action(reply: str, meant: str | None) -> None:
    assert parse(reply) == meant


def test_a_fair_number_of_turns_is_ample_for_the_expert() -> None:
    for id in ("babyai/GoToLocalS5N2", "babyai/GoToLocal", "babyai/PickupLoc"):
        for index in range(20):
            room = world(id, index)
            assert len(room.oracle()) <= room.spec.typical_turns


def levels_of_the_package(kind: type[MiniGrid]) -> list[str]:
    """The levels in a new process: MiniHack, once imported, registers two more for MiniGrid."""
    code = f"from {kind.__module__} import {kind.__name__} as kind; print(*kind.names())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_table_of_turns_follows_from_the_sizes_of_all_levels() -> None:
    names = levels_of_the_package(MiniGrid)
    assert len(names) > 70
    for name in names:
        if not name.startswith("WFC-"):  # these need packages that minigrid leaves out
            env = MiniGrid(name)._env
            assert TURNS[f"MiniGrid-{name}"] == 2 * (env.width + env.height), name
    names = levels_of_the_package(BabyAI)
    assert len(names) > 90
    for name in names:
        env = BabyAI(name)._env
        trips = 1 if name.startswith("GoTo") else 2
        rooms = max(5, 3 * env.room_size - 8) * env.num_rows * env.num_cols
        assert TURNS[f"BabyAI-{name}"] == rooms * trips, name


# ── the registry ─────────────────────────────────────────────────────────────


def test_an_unknown_level_or_family_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'GoToLocalS5N2'"):
        registry.make("babyai/GoToLocalS5N2x")
    with pytest.raises(UnknownName, match="Did you mean 'babyai'"):
        registry.tasks("babyia/GoToLocal")
    with pytest.raises(UnknownName):
        registry.make("babyai")


def test_a_class_that_is_not_registered_is_addressed_by_its_module() -> None:
    made = registry.make("palaestra.environments.families.babyai.environment:MiniGrid/Empty-5x5")
    assert isinstance(made, MiniGrid) and Capability.ORACLE not in made.spec.capabilities
    with pytest.raises(InputError, match="no class 'Nothing'"):
        registry.make("palaestra.environments.families.babyai.environment:Nothing/Empty-5x5")
    with pytest.raises(InputError, match="not a subclass of palaestra"):
        registry.make("palaestra.core.task:Task")


@pytest.mark.parametrize("name", ["KeyCorridorS3R1", "OpenRedBlueDoorsDebug", "PutNextS5N1"])
def test_an_expert_asked_at_every_step_arrives(name: str) -> None:
    """The bot plans again each time; where it has to explore, it used to turn back for ever."""
    the_oracle_leads_on(Subject.of(f"babyai/{name}"))


@pytest.mark.parametrize("id", ["babyai/PickupLoc", "babyai/PutNextLocalS5N3"])
def test_the_expert_goes_on_with_the_wrong_thing_in_its_hands(id: str) -> None:
    """Check states where a random walk has picked something up; the bot assumes empty hands."""
    met = 0
    for index in range(40):
        room, rng = world(id, index), random.Random(index)
        ended = False
        while not ended and room._env.carrying is None and room._env.step_count < 8:
            reply = Action(rng.choice(["left", "forward", "pickup"]))
            ended = (last := room.step(reply)).terminated or last.truncated
        if ended or room._env.carrying is None:
            continue
        met += 1
        assert [room.step(action) for action in room.oracle()][-1].success
    assert met >= 5
