"""The arcade satisfies the contract, equals ALE's own games, and reads their memory correctly."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from palaestra.core.environment import Action, Capability, Transition
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.conformance.clauses import CLAUSES, Subject

ale_py = pytest.importorskip("ale_py")
gymnasium = pytest.importorskip("gymnasium")

import numpy as np  # noqa: E402

from palaestra.environments.families.atari.environment import BACK, DUELS, Atari  # noqa: E402
from palaestra.environments.families.atari.ram import READINGS, decimal, hex_dump  # noqa: E402
from tests.chosen import mostly_slow  # noqa: E402

FREEWAY_CARS = [  # colours from the highest lane to the lowest
    (167, 26, 26),
    (180, 231, 117),
    (105, 105, 15),
    (228, 111, 111),
    (24, 26, 167),
    (162, 98, 33),
    (84, 92, 214),
    (184, 50, 50),
    (135, 183, 84),
    (210, 210, 64),
]


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", mostly_slow(["Pong", "SpaceInvaders"], "Pong"))
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject(lambda: Atari(name), TaskSet(f"arcade/{name}"), steps=15, per_split=1))


def task(index: int = 0, split: Split = Split.TRAIN) -> Task:
    return TaskSet("arcade/Pong").task(split, index)


def world(name: str = "Pong", index: int = 0) -> Atari:
    made = Atari(name)
    made.reset(task(index))
    return made


def walk(of: Atari, seed: int, steps: int) -> Iterator[Transition]:
    rng = random.Random(seed)
    for _ in range(steps):
        yield of.step(sample_action(of, rng))


def wander(of: Atari, seed: int, steps: int) -> list[Transition]:
    return list(walk(of, seed, steps))


def ale(of: Atari) -> Any:
    return of._env.ale


# ── ALE's own games ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", mostly_slow(["Breakout", "Seaquest"], "Breakout"))
def test_memory_pictures_rewards_and_ends_are_those_of_the_v5_id(name: str) -> None:
    theirs = gymnasium.make(f"ALE/{name}-v5", disable_env_checker=True).unwrapped
    ours = Atari(name)
    words = ours.admissible()
    for index in (1, 2):
        theirs.reset(seed=task(index).seed)
        ours.reset(task(index))
        rng, total = random.Random(index), 0.0
        for step in range(250):
            number = rng.randrange(len(words))
            picture, reward, terminated, truncated, _ = theirs.step(number)
            result = ours.step(Action(words[number]))
            total += reward
            assert result.reward == reward
            assert (result.terminated, result.truncated) == (terminated, truncated)
            assert result.observation.text.startswith(f"Score {total:g}")
            if step % 40 == 0:
                native = ours.native()
                assert (native["ram"] == theirs.ale.getRAM()).all()
                assert (native["image"] == picture).all()
            if terminated:
                break


def test_the_games_and_their_settings_are_gymnasium_s() -> None:
    names = Atari.names()
    games = [name for name in names if not name.endswith("-ram")]
    assert len(games) == 104 and {f"{game}-ram" for game in READINGS} == set(names) - set(games)
    for name in ("Pong", "Boxing"):
        made = Atari(name)
        spec = gymnasium.spec(f"ALE/{name}-v5").kwargs
        assert made._env._frameskip == spec["frameskip"] == 4
        assert ale(made).getFloat("repeat_action_probability") == 0.25
        assert ale(made).getInt("max_num_frames_per_episode") == 108_000
        assert len(made.admissible()) == len(ale(made).getMinimalActionSet())


@pytest.mark.slow
@pytest.mark.parametrize("name", Atari.names())
def test_every_game_starts_and_goes_on(name: str) -> None:
    made = world(name)
    assert all(step.valid and step.observation.text for step in wander(made, 0, 20))
    copy = Atari(name)
    copy.restore(made.snapshot())
    assert wander(copy, 1, 5) == wander(made, 1, 5)
    made.close()
    copy.close()


def test_game_over_terminates_and_the_frame_limit_truncates() -> None:
    breakout = world("Breakout")
    for _ in range(4000):
        last = breakout.step(Action("fire"))
        if last.terminated:
            break
    assert last.terminated and not last.truncated and not last.success
    assert last.observation.text.endswith("Game over.") and breakout.admissible() == []
    after = breakout.step(Action("fire"))
    assert not after.valid and after.reward == 0

    pong = Atari("Pong")
    ale(pong).setInt("max_num_frames_per_episode", 40)  # for this test; read at the reset
    pong.reset(task(12345))  # not a cached one
    result = wander(pong, 0, 10)
    assert [step.truncated for step in result] == [False] * 9 + [True]
    assert not result[-1].terminated and result[-1].observation.text.endswith("Time is over.")


def forced(name: str, bytes: dict[int, int]) -> Transition:
    """Return ALE's transition after setting a game's memory."""
    made = world(name)
    wander(made, 0, 10)
    for address, value in bytes.items():
        ale(made).setRAM(address, value)
    for _ in range(3):
        result = made.step(Action("noop"))
        if result.terminated:
            break
    return result


@pytest.mark.parametrize(
    ("name", "won", "lost"),
    [
        ("Pong", {14: 21}, {13: 21}),
        ("Boxing", {18: 0xC0}, {19: 0xC0}),
        ("Boxing", {18: 5, 19: 3, 16: 0, 17: 0}, {18: 3, 19: 3, 16: 0, 17: 0}),
        ("FishingDerby", {0x3D: 0x99}, {0x3E: 0x99}),
        ("IceHockey", {10: 3, 11: 1, 6: 0, 7: 0}, {10: 1, 11: 3, 6: 0, 7: 0}),
    ],
)
def test_a_duel_that_ends_above_zero_is_won(
    name: str, won: dict[int, int], lost: dict[int, int]
) -> None:
    assert name in DUELS
    victory, defeat = forced(name, won), forced(name, lost)
    assert victory.terminated and victory.success and victory.reward > 0
    assert defeat.terminated and not defeat.success and defeat.reward <= 0


# ── what the memory means ────────────────────────────────────────────────────


def spot(picture: Any, colour: tuple[int, int, int], rows: slice, columns: slice) -> Any:
    """Return the left and upper edge of the pixels of a colour in part of the picture; or None."""
    found = (picture[rows, columns] == np.array(colour)).all(-1).nonzero()
    if not len(found[0]):
        return None
    return int(found[1].min()) + columns.start, int(found[0].min()) + rows.start


def numbers(text: str, pattern: str) -> list[int]:
    match = re.search(pattern, text)
    return [int(number) for number in match.groups()] if match else []


def moved(name: str, word: str, pattern: str, times: int = 12) -> int:
    """Return how much the matched number grows after repeating an action."""
    made = world(name)
    result = [made.step(Action("noop")) for _ in range(30)]
    result += [made.step(Action(word)) for _ in range(times)]
    return (
        numbers(result[-1].observation.text, pattern)[0]
        - (numbers(result[29].observation.text, pattern)[0])
    )


def test_pong_s_paddles_ball_and_points_are_where_they_are_reported() -> None:
    made = world("Pong")
    field, seen = slice(34, 194), 0
    points = [0, 0]
    for result in walk(made, 3, 250):
        text, picture = result.observation.text, made.native()["image"]
        points[result.reward < 0] += abs(int(result.reward))
        assert numbers(text, r"Points (\d+), other (\d+)") == points
        x, y, other_x = numbers(text, r"You x (\d+) y (\d+), other x (\d+)")
        mine = spot(picture, (92, 186, 92), field, slice(0, 160))
        theirs = spot(picture, (213, 130, 74), field, slice(0, 160))
        ball = spot(picture, (236, 236, 236), field, slice(0, 160))
        assert mine and mine[0] == x - 48
        assert abs(mine[1] - (y - 14)) <= 1 or mine[1] in (34, 38) or y > 190  # cut at the edge
        if theirs:
            assert theirs[0] == other_x - 48
        if ball:
            ball_x, ball_y = numbers(text, r"Ball x (\d+) y (\d+)")
            assert ball[0] == ball_x - 49 and abs(ball[1] - (ball_y - 14)) <= 2
            seen += 1
    assert seen > 100
    assert moved("Pong", "right", r"You x \d+ y (\d+)") < -20
    assert moved("Pong", "left", r"You x \d+ y (\d+)") > 20


def test_breakout_s_paddle_and_ball_are_where_they_are_reported() -> None:
    made = world("Breakout")
    red, seen, right = (200, 72, 72), 0, 0
    rng = random.Random(0)
    for turn in range(300):
        result = made.step(Action("fire" if turn % 20 == 0 else sample_action(made, rng).text))
        if result.terminated:
            break
        text, picture = result.observation.text, made.native()["image"]
        (x,) = numbers(text, r"You x (\d+)")
        paddle = spot(picture, red, slice(189, 193), slice(8, 152))
        right += paddle is not None and paddle[0] == max(8, x - 47)
        ball = spot(picture, red, slice(93, 189), slice(8, 152))
        if ball:
            ball_x, ball_y = numbers(text, r"Ball x (\d+) y (\d+)")
            assert abs(ball[0] - (ball_x - 49)) <= 1 and ball[1] == ball_y + 9
            seen += 1
    assert seen > 50 and right > 0.9 * turn
    assert moved("Breakout", "right", r"You x (\d+)") > 20
    assert moved("Breakout", "left", r"You x (\d+)") < -20


def test_boxing_s_boxers_and_points_are_where_they_are_reported() -> None:
    made = world("Boxing")
    points, right = [0, 0], 0
    ring = slice(36, 178), slice(30, 130)
    for result in walk(made, 0, 250):
        text, picture = result.observation.text, made.native()["image"]
        mine, other = numbers(text, r"Points (\d+), other (\d+)")
        assert mine - other == sum(points) + result.reward
        points.append(int(result.reward))
        x, y = numbers(text, r"You x (\d+) y (\d+)")
        boxer = spot(picture, (214, 214, 214), *ring)
        right += abs(boxer[0] - (x + 5)) <= 2 and abs(boxer[1] - (y + 38)) <= 2
    assert right > 235 and any(points)
    assert moved("Boxing", "right", r"You x (\d+)") > 5
    assert moved("Boxing", "down", r"You x \d+ y (\d+)") > 5


def test_freeway_s_chicken_and_cars_are_where_they_are_reported() -> None:
    made = world("Freeway")
    right = cars_seen = 0
    for _ in range(300):
        result = made.step(Action("up"))
        text, picture = result.observation.text, made.native()["image"]
        (y,) = numbers(text, r"You y (\d+)")
        lower = spot(picture, (252, 252, 84), slice(108, 195), slice(44, 52))
        upper = spot(picture, (252, 252, 84), slice(16, 99), slice(44, 52))
        chicken = upper or lower  # between them is a line of its colour
        right += chicken is not None and abs(chicken[1] - (193 - y)) <= 1
        cars = [int(x) for x in text.rsplit("x ", 1)[1].rstrip(".").split(", ")]
        for lane, colour in enumerate(reversed(FREEWAY_CARS)):
            rows = slice(24 + 16 * (9 - lane), 40 + 16 * (9 - lane))
            car = spot(picture, colour, rows, slice(0, 160))
            if car and 12 < car[0] < 140:
                cars_seen += 1
                assert abs(car[0] - (cars[lane] - 3)) <= 3
    assert right > 200 and cars_seen > 1500
    assert result.observation.text.startswith("Score ")
    assert moved("Freeway", "up", r"You y (\d+)") > 20


def test_who_reads_the_memory_plays_better_than_chance() -> None:
    def follow(text: str) -> str:
        found = numbers(text, r"You x (\d+)\. Ball x (\d+)")
        if not found:
            return "fire"
        off = found[1] - (found[0] + 8)
        return "left" if off < -4 else "right" if off > 4 else "noop"

    made = Atari("Breakout")
    text, score = made.reset(task()).text, 0.0
    for _ in range(600):
        result = made.step(Action(follow(text)))
        text, score = result.observation.text, score + result.reward
        if result.terminated:
            break
    assert score > 15  # random play makes one or two


def test_what_has_no_reading_is_reported_byte_for_byte() -> None:
    for name in ("SpaceInvaders", "Pong-ram"):
        made = world(name)
        text = wander(made, 0, 30)[-1].observation.text
        result = bytes.fromhex(text.split("Memory: ")[1])
        assert result == made.native()["ram"].tobytes() and len(result) == 128
    assert "Memory" not in world("Pong").instructions
    assert hex_dump(range(128)).split()[1].startswith("10")
    assert [decimal(byte) for byte in (0, 0x09, 0x10, 0x99, 0xC0)] == [0, 9, 10, 99, 100]


# ── actions ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reply", "valid"),
    [
        ("up right fire", True),
        ("UPRIGHTFIRE", True),
        ("up-right, fire.", True),
        ("noop\nand then fire", True),
        ("fire up right", False),
        ("jump", False),
        ("", False),
        ("\n", False),
    ],
)
def test_what_counts_as_an_action(reply: str, valid: bool) -> None:
    made = world("Boxing")
    before = made._state()
    assert made.step(Action(reply)).valid == valid
    assert (made._state() == before) != valid


def test_actions_are_the_game_s_minimal_ones_in_words() -> None:
    expected = ["noop", "fire", "right", "left", "right fire", "left fire"]
    assert Atari("Pong").admissible() == expected
    assert Atari("Pong").instructions.endswith(f": {', '.join(expected)}.")
    assert "the Atari game Space Invaders." in Atari("SpaceInvaders").instructions


# ── state ────────────────────────────────────────────────────────────────────


def test_ale_s_own_state_forgets_the_action_that_is_held() -> None:
    """Why a snapshot has more than that state."""
    parted = 0
    made, other = world("Pong"), world("Pong", 1)
    for trial in range(20):
        wander(made, trial, 5)
        made.step(Action("right"))
        state = made._env.clone_state(include_rng=True)
        other._env.step(3)  # left
        other._env.restore_state(state)
        futures = [
            [(of._env.step(0)[0].tobytes(), of._state()) for _ in range(3)] for of in (made, other)
        ]
        parted += futures[0] != futures[1]
    assert parted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("Pong", 0),
        ("Pong", 1),
        ("Breakout", BACK),
        ("Breakout", 2 * BACK),
        ("Boxing", 2 * BACK + 5),
        ("Seaquest", 61),
    ],
)
def test_a_restored_game_goes_on_as_the_saved_one(name: str, steps: int) -> None:
    made, other = world(name), world(name, 7)
    wander(made, 1, steps)
    wander(other, 2, 3)
    other.restore(made.snapshot())
    for turn in range(3):
        assert (other.native()["image"] == made.native()["image"]).all()
        assert (other.native()["ram"] == made.native()["ram"]).all()
        assert wander(other, turn, 6) == wander(made, turn, 6)
        assert other._state() == made._state()
    again = Atari(name)
    again.restore(other.snapshot())  # of a game that was itself restored
    assert wander(again, 9, 20) == wander(made, 9, 20)


def test_a_snapshot_of_an_end_is_an_end() -> None:
    made = world("Pong")
    ale(made).setRAM(13, 21)
    assert made.step(Action("noop")).terminated
    other = Atari("Pong")
    other.restore(made.snapshot())
    assert not other.step(Action("noop")).valid and other.admissible() == []
    assert other.reset(task()) == Atari("Pong").reset(task())


@pytest.mark.parametrize("name", mostly_slow(["Breakout", "Enduro"], "Breakout"))
def test_a_game_that_is_started_again_is_the_same(name: str) -> None:
    first, other = world(name, 77), Atari(name)
    wander(first, 0, 5)
    other.reset(task(78))
    wander(other, 0, 5)
    for made in (first, other):
        made.reset(task(77))
    fresh = gymnasium.make(f"ALE/{name}-v5", disable_env_checker=True).unwrapped
    picture, _ = fresh.reset(seed=task(77).seed)
    assert first._state() == other._state() == fresh.clone_state(include_rng=True).serialize()
    assert (first.native()["image"] == picture).all() and (other.native()["image"] == picture).all()
    assert wander(first, 1, 20) == wander(other, 1, 20)


def test_chance_comes_from_the_task_s_seed() -> None:
    def result(index: int) -> list[Transition]:
        return wander(world("Breakout", index), 0, 60)

    assert result(0) == result(0) != result(1)


# ── bad input ────────────────────────────────────────────────────────────────


def test_a_misspelt_game_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'Breakout'"):
        Atari("Brekout")
    with pytest.raises(UnknownName):
        Atari("Combat")  # a two-player cartridge


def test_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="take no parameters"):
        Atari("Pong").reset(Task("t", "arcade/Pong", 0, parameters={"mode": 1}))


def test_a_snapshot_of_another_game_is_refused() -> None:
    with pytest.raises(InputError, match="snapshot of 'arcade/Pong'"):
        Atari("Boxing").restore(world("Pong").snapshot())


def test_a_game_without_a_task_reports_it() -> None:
    with pytest.raises(InputError, match="call reset"):
        Atari("Pong").step(Action("noop"))


def test_there_is_no_oracle_and_no_progress() -> None:
    made = world("Pong")
    assert Capability.PROGRESS not in made.spec.capabilities
    with pytest.raises(CapabilityMissing):
        made.oracle()
    with pytest.raises(CapabilityMissing):
        made.progress()


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    wander(world("Pong"), 0, 3)
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""
