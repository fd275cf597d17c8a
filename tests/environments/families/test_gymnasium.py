"""Gymnasium's environments as text: dynamics, rewards and ends are the package's own."""

from __future__ import annotations

import random
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

pytest.importorskip("gymnasium")

import gymnasium
import numpy
from gymnasium import spaces

from palaestra.core.environment import Action, Capability, Environment
from palaestra.core.errors import InputError, MissingPackage, UnknownName
from palaestra.core.task import Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.gymnasium import environment
from palaestra.environments.families.gymnasium import spaces as gymnasium_spaces
from palaestra.environments.families.gymnasium.environment import Gymnasium, uncoloured
from palaestra.environments.families.gymnasium.words import KNOWN, Solved, Words

SAMPLED = ("CliffWalking-v1", "CliffWalkingSlippery-v1", "FrozenLake-v1", "Taxi-v4")
IDS = (*SAMPLED, *(id for id in Gymnasium.names() if id not in SAMPLED))


def task(seed: int) -> Task:
    return Task(id=f"train/{seed}", environment="gymnasium", seed=seed)


def started(world: Gymnasium, seed: int = 0) -> Gymnasium:
    world.reset(task(seed))
    return world


class Corridor(gymnasium.Env[Any, Any]):
    """A third party's environment: three steps to a door, in the dark."""

    action_space: ClassVar[Any] = spaces.Discrete(2)
    observation_space: ClassVar[Any] = spaces.Box(0, 9, (1,), numpy.int64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 5))
        print("noise that nobody should see")
        return numpy.array([self.left]), {}

    def step(self, action: int) -> Any:
        self.left += 1 - 2 * int(action)
        arrived = self.left == 0
        return numpy.array([self.left]), float(arrived), arrived, False, {}


class Chancy(Corridor):
    """The same with a spec that declares it nondeterministic."""


class Everything(gymnasium.Env[Any, Any]):
    """An environment with all kinds of spaces."""

    action_space: ClassVar[Any] = spaces.MultiDiscrete([3, 2])
    observation_space: ClassVar[Any] = spaces.Dict(
        {
            "seen": spaces.Tuple((spaces.Discrete(4), spaces.Text(9))),
            "bits": spaces.MultiBinary(3),
            "grid": spaces.Box(-1, 1, (2, 2)),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen([0, 0]), {"action_mask": numpy.ones(1)}

    def step(self, action: Any) -> Any:
        return self._seen(action), 0.25, False, False, {}

    def _seen(self, action: Any) -> Any:
        grid = numpy.array([[0.5, -0.0], [1 / 3, 1]], numpy.float32)
        return {"seen": (int(action[0]), "abc"), "bits": numpy.array([1, 0, 1]), "grid": grid}


class Picture(Everything):
    observation_space: ClassVar[Any] = spaces.Box(0, 255, (96, 96, 3), numpy.uint8)


@pytest.fixture(autouse=True)
def third_party() -> Iterator[None]:
    before = dict(gymnasium.registry)
    gymnasium.register("test/Chancy-v0", Chancy, nondeterministic=True)
    gymnasium.register("test/Everything-v0", Everything, max_episode_steps=3, reward_threshold=0.7)
    gymnasium.register("test/Picture-v0", Picture)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


# ── the contract, and the package ────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "id",
    "Taxi-v4 FrozenLake-v1 CartPole-v1 Blackjack-v1 Pendulum-v1 test/Everything-v0".split(),
)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject(lambda: Gymnasium(id), Gymnasium.tasks(f"gymnasium/{id}"), steps=15))


@pytest.mark.parametrize("id", IDS)
def test_observations_rewards_and_ends_are_the_packages_own(id: str) -> None:
    mode = "ansi" if id in (*SAMPLED, "FrozenLake8x8-v1") else None
    world, inner = Gymnasium(id), gymnasium.make(id, render_mode=mode, disable_env_checker=True)
    words = environment.of(id, KNOWN)
    choices = world._parser.words
    for seed in range(4):
        rng = random.Random(seed)
        seen, _ = inner.reset(seed=seed)
        text, total = world.reset(task(seed)).text, 0.0
        for _ in range(600):
            if mode:
                drawing = uncoloured(inner.render(), words.marker)
                assert text.startswith(drawing.strip("\n") + "\n") and "\x1b" not in text
                last = text.splitlines()[-1]
                assert words.render is not None and last == words.render(inner.unwrapped, seen)
            else:
                expected = gymnasium_spaces.render_value(
                    inner.observation_space, seen, words.observed
                )
                assert text == expected
            action = world.sample_action(rng)
            choice = choices.index(action.text) if choices else numpy.float32([action.text])
            seen, reward, terminated, truncated, _ = inner.step(choice)
            got = world.step(action)
            text, total = got.observation.text, total + float(reward)
            assert got.reward == float(reward) and got.valid
            assert (got.terminated or got.truncated) == bool(terminated or truncated)
            if terminated or truncated:
                assert got.terminated == bool(terminated or got.success)
                assert got.truncated == bool(truncated and not terminated and not got.success)
                break
        world.step(Action("rubbish"))
        assert world._return == total


def test_names_and_numbers_of_observations_are_reported() -> None:
    observation = started(Gymnasium("CartPole-v1")).step(Action("left")).observation.text
    names = [part.rsplit(" ", 1)[0] for part in observation.split(", ")]
    assert names == list(KNOWN["CartPole"].observed)
    assert Gymnasium("Blackjack-v1").reset(task(1)).text == (
        "your sum 20, dealer's card 7, usable ace 0"
    )


def test_the_drawn_position_is_marked() -> None:
    lake = Gymnasium("FrozenLake-v1").reset(task(0)).text
    assert lake.splitlines()[0] == "[S]FFF"
    taxi = Gymnasium("Taxi-v4").reset(task(3)).text
    assert taxi.splitlines()[1] == "|R: |T: :G|"
    assert taxi.endswith("The passenger waits at R and wants to go to Y.")


# ── success ──────────────────────────────────────────────────────────────────


def balance(observation: str) -> str:
    """Push the cart to where the pole falls."""
    _, speed, angle, turning = (float(part.rsplit(" ", 1)[1]) for part in observation.split(", "))
    return "right" if angle + 0.4 * turning + 0.02 * speed > 0 else "left"


def test_a_pole_that_stays_up_until_the_limit_is_solved() -> None:
    world = Gymnasium("CartPole-v1")
    text, rewards = world.reset(task(0)).text, 0.0
    for _ in range(500):
        got = world.step(Action(balance(text)))
        text, rewards = got.observation.text, rewards + got.reward
    assert rewards == 500 and got.success and got.terminated and not got.truncated


def test_a_pole_that_falls_is_not() -> None:
    world = started(Gymnasium("CartPole-v1"))
    transitions = [world.step(Action("left")) for _ in range(20)]
    end = next(got for got in transitions if got.terminated)
    assert not end.success and not transitions[-1].valid


def test_the_return_decides_where_there_is_a_threshold_and_nothing_where_there_is_none() -> None:
    world = started(Gymnasium("test/Everything-v0"))
    last = [world.step(Action("1 1")) for _ in range(3)][-1]
    assert last.success and last.terminated  # 3 × 0.25 ≥ 0.7
    pendulum = started(Gymnasium("Pendulum-v1"))
    last = [pendulum.step(Action("0")) for _ in range(200)][-1]
    assert last.truncated and not last.terminated and not last.success


def test_a_hole_ends_the_walk_without_success_and_the_goal_with_it() -> None:
    ends = set()
    for seed in range(120):
        world, rng = started(Gymnasium("FrozenLake-v1"), seed), random.Random(seed)
        for _ in range(100):
            got = world.step(Action(rng.choice(("down", "right"))))
            if got.terminated:
                mark = "[G]" if got.success else "[H]"
                assert mark in got.observation.text and got.reward == float(got.success)
                ends.add(mark)
                break
    assert ends == {"[G]", "[H]"}


def test_hands_of_blackjack_are_won_or_not() -> None:
    for seed in range(30):
        got = started(Gymnasium("Blackjack-v1"), seed).step(Action("stick"))
        assert got.terminated and got.success == (got.reward > 0)


# ── the oracle ───────────────────────────────────────────────────────────────


def best_returns(table: Any) -> list[float]:
    """Return the largest return of each state: value iteration over the package's table."""
    values = [0.0] * len(table)
    for _ in range(60):
        values = [
            max(
                sum(p * (reward + (0 if end else values[after])) for p, after, reward, end in one)
                for one in row.values()
            )
            for row in table.values()
        ]
    return values


@pytest.mark.parametrize(("id", "count"), [("Taxi-v4", 40), ("CliffWalking-v1", 1)])
def test_the_oracle_has_the_largest_possible_return(id: str, count: int) -> None:
    world = Gymnasium(id)
    inner = world._env.unwrapped
    best = best_returns(inner.P)
    for seed in range(count):
        world.reset(task(seed))
        begun, plan, before, total = int(inner.s), world.oracle(), world.progress(), 0.0
        assert len(plan) <= world.spec.typical_turns
        for action in plan:
            got = world.step(action)
            total += got.reward
            assert world.progress() > before
            before = world.progress()
        assert got.success and world.progress() == 1.0 and total == best[begun]


def test_from_anywhere_the_oracle_finds_a_plan_and_a_fall_is_fixed() -> None:
    world = started(Gymnasium("CliffWalking-v1"))
    fall = world.step(Action("right"))
    assert fall.reward == -100 and not fall.terminated and world.progress() == 0.0
    world.step(Action("up"))
    transitions = [world.step(action) for action in world.oracle()]
    assert len(transitions) == 12 and transitions[-1].success


def test_what_is_left_to_chance_has_no_oracle_and_what_a_subclass_dries_has_one() -> None:
    class Dry(Gymnasium):
        settings: ClassVar[dict[str, Any]] = {"is_slippery": False}

    has = Gymnasium("FrozenLake-v1").spec.capabilities
    slippery = {Capability.ORACLE, Capability.PROGRESS} & has
    assert (
        not slippery
        and Capability.ORACLE not in Gymnasium.spec_of("CliffWalkingSlippery-v1").capabilities
    )
    world = started(Dry("FrozenLake-v1"))
    assert len(world.oracle()) == 6
    assert [world.step(action) for action in world.oracle()][-1].success


def test_the_packages_mask_leaves_out_what_changes_nothing() -> None:
    world = started(Gymnasium("Taxi-v4"), 3)
    mask = gymnasium.make("Taxi-v4").reset(seed=3)[1]["action_mask"]
    assert world.admissible() == [w for w, m in zip(KNOWN["Taxi"].actions, mask, strict=True) if m]
    assert world.step(Action("dropoff")).reward == -10  # it is valid all the same


def test_a_slippery_state_is_the_place_with_the_coming_random_state() -> None:
    one, other = (started(Gymnasium("FrozenLake-v1"), 5) for _ in range(2))
    keys = [world.state_key() for world in (one, other)]
    assert keys[0] == keys[1]
    one.step(Action("left"))
    assert one.state_key() != keys[0]  # even if it did not move: the random generator did


# ── what is said ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("id", "reply", "understood"),
    [
        ("Taxi-v4", " North.\n", True),
        ("Taxi-v4", "> `pickup`", True),
        ("Taxi-v4", "\n**west**\nbecause", True),
        ("Taxi-v4", "1", False),
        ("Taxi-v4", "north north", False),
        ("Taxi-v4", "", False),
        ("Pendulum-v1", "[.5]", True),
        ("Pendulum-v1", "-2", True),
        ("Pendulum-v1", "1.", True),
        ("Pendulum-v1", "1e-1", True),
        ("Pendulum-v1", "2.5", False),
        ("Pendulum-v1", "nan", False),
        ("Pendulum-v1", "inf", False),
        ("Pendulum-v1", "1e999999", False),
        ("Pendulum-v1", "1 1", False),
        ("Pendulum-v1", "__import__('os')", False),
        ("test/Everything-v0", "2, 1", True),
        ("test/Everything-v0", "[0 0]", True),
        ("test/Everything-v0", "3 0", False),
        ("test/Everything-v0", "1.5 0", False),
        ("test/Everything-v0", "-1 0", False),
    ],
)
def test_what_counts_as_an_action(id: str, reply: str, understood: bool) -> None:
    world = started(Gymnasium(id))
    before = world.state_key()
    got = world.step(Action(reply))
    assert got.valid == understood
    if not understood:
        assert world.state_key() == before
        assert got.observation.text in world.instructions and got.reward == 0.0


def test_a_half_is_a_half() -> None:
    inner = gymnasium.make("Pendulum-v1")
    inner.reset(seed=0)
    expected = float(inner.step(numpy.float32([0.5]))[1])
    assert started(Gymnasium("Pendulum-v1")).step(Action(".5")).reward == expected


def test_every_kind_of_space_is_reported() -> None:
    world = Gymnasium("test/Everything-v0")
    # the package sorts the keys of a Dict space
    assert world.reset(task(0)).text == "bits 1 0 1; grid 0.5 0\n0.333 1; seen 0 abc"
    assert "2 whole numbers, separated by blanks, from – to: 0 – 2, 0 – 1." in world.instructions


def test_pictures_are_refused() -> None:
    with pytest.raises(InputError, match="27,648 numbers cannot be rendered"):
        Gymnasium("test/Picture-v0")


# ── third parties ────────────────────────────────────────────────────────────


def test_the_example_of_the_documentation_describes_a_third_partys_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = types.ModuleType("my_package")
    package.__dict__.update(Corridor=Corridor)
    monkeypatch.setitem(sys.modules, "my_package", package)
    example = textwrap.dedent((environment.__doc__ or "").partition("::\n\n")[2])
    assert len(example.strip().splitlines()) <= 12
    names: dict[str, Any] = {"gymnasium": gymnasium, "Gymnasium": Gymnasium}
    exec(example, names | {"Words": Words, "Solved": Solved}, names)
    family: type[Environment] = names["Corridors"]
    assert family.names() == ["Corridor-v0"]
    world = family("Corridor-v0")
    assert world.instructions == (
        "Walk through the dark to the door. Reply with one action: back, on."
    )
    assert world.reset(task(1)).text == "steps to the door 3"
    last = [world.step(Action("on")) for _ in range(3)][-1]
    assert last.success and last.reward == 1.0 and last.observation.text == "steps to the door 0"
    assert world.spec.typical_turns == 20
    assert capsys.readouterr().out == ""
    for clause in CLAUSES:
        clause(Subject(lambda: family("Corridor-v0"), family.tasks("corridors/Corridor-v0")))


def test_what_is_not_described_is_reported_in_numbers() -> None:
    world = Gymnasium("test/Chancy-v0")
    assert world.reset(task(1)).text == "3"
    assert world.instructions == "Reply with one action: 0, 1."
    assert not any(world.step(Action("1")).success for _ in range(3))  # success is undefined


def test_an_environment_that_is_not_deterministic_has_no_snapshots_and_no_keys() -> None:
    world = started(Gymnasium("test/Chancy-v0"))
    assert not world.spec.deterministic and world.spec.capabilities == {Capability.ADMISSIBLE}


def test_wrong_names_are_refused_in_words() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'CartPole-v1'"):
        Gymnasium("CartPol-v1")
    with pytest.raises(InputError, match="Please use `Taxi-v4`"):
        Gymnasium("Taxi-v3")
    with pytest.raises(MissingPackage, match="No module named 'no_such_module'"):
        Gymnasium("no_such_module:Corridor-v0")
    with pytest.raises(MissingPackage):
        Gymnasium("Ant-v2")  # moved to another package

    class Misnamed(Gymnasium):
        words: ClassVar[dict[str, Words]] = {"CartPole-v1": Words(actions=("left",))}

    with pytest.raises(InputError, match="1 names do not fit 2 actions"):
        Misnamed("CartPole-v1")


def test_tasks_and_snapshots_of_others_are_refused() -> None:
    world = Gymnasium("CartPole-v1")
    with pytest.raises(InputError, match="call reset"):
        world.step(Action("left"))
    with pytest.raises(InputError, match="take no parameters"):
        world.reset(Task("train/0", "textworld/coin-easy", 0, parameters={"quest": 1}))
    saved = started(Gymnasium("Taxi-v4")).snapshot()
    with pytest.raises(InputError, match="make 'gymnasium/Taxi-v4' instead"):
        started(world).restore(saved)
