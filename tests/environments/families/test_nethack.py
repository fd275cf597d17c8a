"""NetHack in words: the package's game unchanged, the same for the same task, leaving no trace."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("nle", reason="needs nle, see requirements/nethack.txt")
import gymnasium
import numpy as np
from nle import nethack
from nle.nethack import Nethack

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.minihack.oracle import Expert
from palaestra.environments.families.nethack.environment import NetHack
from palaestra.environments.families.nethack.game import BIRTHDAY, SEEN
from palaestra.environments.families.nethack.map import Cells, Items
from palaestra.environments.families.nethack.text import Screen
from palaestra.environments.families.nethack.words import Vocabulary, cleaned


@pytest.fixture
def started() -> Iterator[Callable[..., NetHack]]:
    """Makes worlds that have a game, and closes them."""
    made: list[NetHack] = []

    def start(name: str, seed: int = 1) -> NetHack:
        made.append(NetHack(name))
        made[-1].reset(task(name, seed))
        return made[-1]

    yield start
    for world in made:
        world.close()


def task(name: str, seed: int = 1) -> Task:
    return Task(f"train/{seed}", f"nethack/{name}", seed)


def act(world: NetHack, *words: str) -> Transition:
    """The transition of the last of the actions."""
    return [world.step(Action(word)) for word in words][-1]


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["Score", "Challenge"])
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    tasks = NetHack.tasks(f"nethack/{name}")
    clause(Subject(lambda: NetHack(name), tasks, steps=15, per_split=1))


# ── the package's game, unchanged ────────────────────────────────────────────


def direct(name: str, seed: int) -> gymnasium.Env:
    """Return the package's environment, seeded by its own method if it allows seeding."""
    made = gymnasium.make(
        f"NetHack{name}-v0",
        disable_env_checker=True,
        fix_moon_phase=True,
    ).unwrapped
    if name == "Challenge":
        Nethack.set_initial_seeds(made.nethack, seed, seed, False)
    else:
        made.seed(core=seed, disp=seed, reseed=False)
    made.reset()
    return made


@pytest.mark.parametrize("name", ["Score", "Staircase", "Gold", "Eat", "Scout", "Challenge"])
def test_play_is_the_packages_own(name: str, started: Callable[..., NetHack]) -> None:
    for seed in (0, 7):
        world, package, rng = started(name, seed), direct(name, seed), random.Random(seed)
        for _ in range(150):
            word = sample_action(world, rng).text
            numbers = world._words.meaning(word, world._screen)
            transition, reward, done = act(world, word), 0.0, False
            for number in numbers:
                view, step_reward, done, _, info = package.step(number)
                reward += float(step_reward)
            assert transition.valid and transition.reward == reward
            assert (transition.terminated or transition.truncated) == done
            if done:
                assert transition.truncated == (info["end_status"].name == "ABORTED")
                break
            for key in set(SEEN) & set(view):
                assert np.array_equal(view[key], world._game.see(key)), key
            message = bytes(view["message"]).split(b"\0")[0].decode("latin-1").strip()
            assert message in transition.observation.text or world._screen.menu
        package.close()


def test_reaching_the_staircase_is_success_and_pays_one(started: Callable[..., NetHack]) -> None:
    world, expert = started("Staircase", 0), Expert("Room-5x5")
    last = None
    while last is None or not (last.terminated or last.truncated):
        last = act(world, expert.next(world._screen))
    assert last.success and last.terminated and last.reward == 1.0


def test_the_step_limit_truncates_and_is_no_failure_of_the_game(
    started: Callable[..., NetHack],
) -> None:
    world = started("Score")
    world._game.env._max_episode_steps = 3
    last = act(world, "search", "search", "search")
    assert last.truncated and not last.terminated and not last.success
    assert not act(world, "search").valid


def test_leaving_the_game_terminates_without_success(started: Callable[..., NetHack]) -> None:
    world = started("Challenge")
    last = act(world, "quit", "yes")
    for _ in range(20):
        last = last if last.terminated else act(world, world.admissible()[0])
    assert last.terminated
    assert not last.success and not last.truncated


# ── equal worlds ─────────────────────────────────────────────────────────────


def test_every_game_has_the_same_birthday(started: Callable[..., NetHack]) -> None:
    world = started("Score")
    for seed in (1, 2):
        world.reset(task("Score", seed))
        handle = _ctypes.dlopen(world._game.env.nethack.dlpath, os.RTLD_NOW | os.RTLD_NOLOAD)
        birthday = ctypes.c_long.from_address(_ctypes.dlsym(handle, "ubirthday")).value
        _ctypes.dlclose(handle)  # or the package could not reload it
        assert birthday == BIRTHDAY


def test_the_challenge_has_the_character_of_its_seed(started: Callable[..., NetHack]) -> None:
    world = started("Challenge")
    heads = [world.reset(task("Challenge", seed)).text for seed in (1, 2, 1)]
    assert heads[0] == heads[2] != heads[1]
    assert "lawful female human Samurai" in heads[0]


def test_tasks_take_no_parameters(started: Callable[..., NetHack]) -> None:
    with pytest.raises(InputError, match="take no parameters"):
        started("Score").reset(Task("train/0", "nethack/Score", 0, parameters={"size": 3}))


def test_a_snapshot_of_another_task_is_refused(started: Callable[..., NetHack]) -> None:
    saved = started("Gold").snapshot()
    with pytest.raises(InputError, match="nethack/Gold"):
        started("Score").restore(saved)
    with pytest.raises(UnknownName, match="Did you mean 'Score'"):
        NetHack("score")
    with pytest.raises(InputError, match="reset"):
        NetHack("Score").snapshot()


# ── leaving no trace ─────────────────────────────────────────────────────────


def test_a_closed_world_leaves_no_folder_and_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = psutil.Process().num_fds()
    world = NetHack("Score")
    for seed in range(20):
        world.reset(task("Score", seed))
        act(world, "north", "search")
    assert len(list(tmp_path.iterdir())) == 1
    world.close()
    world.close()
    assert not list(tmp_path.iterdir()) and psutil.Process().num_fds() == before


def test_the_end_of_a_game_leaves_hang_ups_as_they_were(started: Callable[..., NetHack]) -> None:
    incoming = []
    before = signal.signal(signal.SIGHUP, lambda *_: incoming.append(1))
    try:
        world = started("Score")
        world._game.env._max_episode_steps = 1
        assert act(world, "search").truncated
        signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert incoming == [1]


def test_nothing_is_printed(
    capfd: pytest.CaptureFixture[str], started: Callable[..., NetHack]
) -> None:
    world = started("Score")
    world._game.env._max_episode_steps = 1
    act(world, "search")
    assert capfd.readouterr() == ("", "")


# ── what the agent says ──────────────────────────────────────────────────────

FULL = Vocabulary(nethack.ACTIONS)


def screen(message: str = "", cells: dict[tuple[int, int], str] | None = None, **more: object):
    """Return a screen with the agent at (10, 10) and only the given content."""
    usual = {"items": Items(), "vitals": (0,) * 27, "page": "", "asking": False, "typing": False}
    return Screen(
        **{**usual, "message": message, "at": (10, 10), "cells": Cells(cells), "paging": False}
        | more
    )


QUESTION = screen(
    "What do you want to eat? [fg or ?*]",
    asking=True,
    items=Items({"a": "a club", "f": "an apple", "g": "an orange"}),
)
DIRECTION = screen("In what direction?", asking=True)
SURE = screen("Are you sure you want to pray? [yn] (n)", asking=True)
NAMING = screen("What do you want to call it?", typing=True)
MENU = screen(paging=True, page="Drop what?\na - All types\nb + Weapons\n(end)")


@pytest.mark.parametrize(
    ("output", "seen", "keys"),
    [
        ("north", screen(), "k"),
        (" `North.` ", screen(), "k"),
        ("far south-west", screen(), "B"),
        ("Far_east", screen(), "L"),
        ("pick up", screen(), ","),
        ("put on", screen(), "P"),
        ("kick\nbecause it is locked", screen(), "\x04"),
        ("k", screen(), ""),
        ("go home", screen(), ""),
        ("5", screen(), "5"),
        ("f", QUESTION, "f"),
        ("apple", QUESTION, "f"),
        ("AN ORANGE!", QUESTION, "g"),
        ("a", QUESTION, "a"),
        ("club", QUESTION, ""),
        ("an", QUESTION, ""),
        ("north", QUESTION, ""),
        ("kick", QUESTION, ""),
        ("esc", QUESTION, "\x1b"),
        ("north", DIRECTION, "k"),
        ("down", DIRECTION, ">"),
        ("search", DIRECTION, ""),
        ("yes", SURE, "y"),
        ("No", SURE, "n"),
        ("my home", NAMING, "my home\r"),
        ("cancel", NAMING, "\x1b"),
        ("naïve", NAMING, ""),
        ("b", MENU, "b"),
        ("space", MENU, " "),
        ("north", MENU, ""),
    ],
)
def test_what_words_mean(output: str, seen: Screen, keys: str) -> None:
    pressed = [chr(int(nethack.ACTIONS[n])) for n in FULL.meaning(output, seen)]
    assert "".join(pressed) == keys


def test_what_may_be_replied_are_the_actions_or_the_answers() -> None:
    assert {"north", "far north", "pray", "extcmd"} <= set(FULL.choices(screen()))
    assert FULL.choices(QUESTION) == ["f", "g", "more", "esc"]
    assert FULL.choices(SURE) == ["y", "n", "more", "esc"]
    assert {"north", "northwest", "up"} < set(FULL.choices(DIRECTION))
    assert FULL.choices(MENU) == ["space", "esc", "a", "b"]


def test_a_question_that_no_key_of_the_task_answers_leaves_its_keys() -> None:
    few = Vocabulary(tuple(nethack.CompassDirection))
    assert set(few.choices(QUESTION)) == set("kljhunby")


@pytest.mark.parametrize("text", ["", " \n ", "\x00", "ü", "?", "'", ".", "north\x07"])
def test_cleaning_leaves_plain_text(text: str) -> None:
    assert cleaned(text).isascii() and cleaned(cleaned(text)) == cleaned(text)


def test_a_refusal_names_answers_and_takes_no_time(started: Callable[..., NetHack]) -> None:
    world = started("Challenge")
    keys = len(world._game.pressed)
    assert "Say one of: north" in act(world, "dance").observation.text
    assert len(world._game.pressed) == keys
    asked = act(world, "drop").observation.text
    assert asked.startswith("What do you want to drop? [a-f or ?*]") and "Inventory: a - " in asked
    refused = act(world, "dance")
    assert not refused.valid and "Say: a, b, c, d, e, f, more, esc." in refused.observation.text


def test_menus_and_lines_of_text_are_shown_and_answered(started: Callable[..., NetHack]) -> None:
    world = started("Challenge")
    menu = act(world, "inventory").observation.text
    assert menu.startswith("Weapons\na - a +0 katana") and menu.endswith(
        "(space, esc, a, b, c, d, e, f)"
    )
    assert "Free steps" in act(world, "space").observation.text
    act(world, "annotate", "my home")
    assert '"my home"' in act(world, "overview").observation.text


# ── what the agent reads ─────────────────────────────────────────────────────


def test_places_are_reported_in_steps_from_the_agent() -> None:
    cells = {
        (10, 10): "human monk called Agent",
        (10, 9): "floor of a room",
        (10, 8): "doorway",
        (11, 9): "doorway",  # no diagonal step
        (9, 10): "some apples",
        (13, 12): "staircase down",
        (12, 10): "wall",
        **{(20 + n, 10): "water" for n in range(6)},
    }
    free, seen = screen(cells=cells).surroundings().splitlines()
    assert free == "Free steps: north 2."
    assert seen == (
        "Seen: some apples 1 west; doorway 1 north 1 east, 2 north; staircase down 2 south 3 east; "
        "water 10 east, 11 east, 12 east, 13 east and 2 more."
    )


def test_a_corridor_is_reported_by_its_ends() -> None:
    cells = {(10 + n, 10): "corridor" for n in range(1, 5)}
    assert screen(cells=cells).surroundings() == "Free steps: east 4.\nSeen: corridor end 4 east."


KINDS = ["", "corridor", "lit corridor", "doorway", "floor of a room", "boulder", "wall"]


@given(
    st.lists(st.tuples(st.integers(8, 12), st.integers(8, 12), st.sampled_from(KINDS)), max_size=60)
)
def test_what_changed_position_by_position_is_reported_as_if_read_at_once(
    changes: list[tuple[int, int, str]],
) -> None:
    cells = Cells()
    now = screen()._replace(cells=cells)
    for x, y, kind in changes:
        if kind:
            cells[x, y] = kind
        elif (x, y) in cells:
            del cells[x, y]
        assert now.surroundings() == screen(cells=dict(cells)).surroundings()


def test_instructions_are_short_and_name_the_goal() -> None:
    for name in NetHack.names():
        world = NetHack(name)
        assert world.goal in world.instructions and len(world.instructions.split()) <= 120
        assert world.reset(task(name)).text.startswith(f"Goal: {world.goal}\n")
        world.close()
