"""The cost of a step through palaestra, against the package alone.

Both sides run the same tasks with random actions; only steps are timed, not resets and not the
choice of an action. The package is used as in its README: Gymnasium's step, OpenSpiel's state with
the observation and the legal moves of the next player, a TextWorld game with the same requested
information as our adapter. The goal is a step that takes at most a tenth longer, or 50 µs,
whichever is more. The time to write text observations counts against palaestra:
    python benchmarks/environments.py [--json] [--rounds N] [ID …]

Worlds whose package is not installed are left out, and named.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from measuring import PeerUnavailable, Result, alternate, run

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.registry import make, tasks

SECONDS = 1.0  # of steps, per side and round
LONGEST = 200  # steps of an episode
SHARE, ABSOLUTE = 0.10, 50e-6  # what a step may cost above the package's


class Driver(Protocol):
    """One side."""

    def begin(self, task: Task) -> None: ...

    def choose(self) -> Any: ...

    def step(self, action: Any) -> bool:
        """Whether the episode is over."""
        ...


class Ours:
    """A world of palaestra, as agents have it."""

    def __init__(self, id: str) -> None:
        self._world, self._dice = make(id), random.Random(0)

    def begin(self, task: Task) -> None:
        self._world.reset(task)

    def choose(self) -> Action:
        return sample_action(self._world, self._dice)

    def step(self, action: Action) -> bool:
        transition = self._world.step(action)
        return transition.terminated or transition.truncated


class Gymnasium:
    """Any id of Gymnasium."""

    def __init__(self, id: str, package: str = "", **options: Any) -> None:
        import gymnasium

        if package:
            __import__(package)
        self._env = gymnasium.make(id, disable_env_checker=True, **options)

    def begin(self, task: Task) -> None:
        self._env.reset(seed=task.seed)

    def choose(self) -> Any:
        return self._env.action_space.sample()

    def step(self, action: Any) -> bool:
        _, _, terminated, truncated, _ = self._env.step(action)
        return bool(terminated or truncated)


class NetHack(Gymnasium):
    """NLE and what is built on it: `reset(seed=…)` seeds their Gymnasium part, not the game."""

    def begin(self, task: Task) -> None:
        from nle.nethack import Nethack

        Nethack.set_initial_seeds(self._env.unwrapped.nethack, task.seed, task.seed, False)
        super().begin(task)


class Crafter:
    """The package's own environment; its step draws a picture."""

    def __init__(self) -> None:
        import crafter

        self._make, self._dice = crafter.Env, random.Random(0)

    def begin(self, task: Task) -> None:
        self._env = self._make(seed=task.seed)
        self._env.reset()

    def choose(self) -> int:
        return self._dice.randrange(self._env.action_space.n)

    def step(self, action: int) -> bool:
        return bool(self._env.step(action)[2])


class OpenSpiel:
    """One seat, against another random one."""

    def __init__(self, name: str) -> None:
        import pyspiel

        self._game, self._dice = pyspiel.load_game(name), random.Random(0)

    def begin(self, task: Task) -> None:
        self._state, self._seat = self._game.new_initial_state(), task.seed % 2
        self._others()
        if self._state.is_terminal():
            self.begin(task)

    def _others(self) -> None:
        state = self._state
        while not state.is_terminal() and state.current_player() != self._seat:
            if state.is_chance_node():
                outcomes, chances = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(self._dice.choices(outcomes, chances)[0])
            else:
                state.apply_action(self._dice.choice(state.legal_actions()))

    def choose(self) -> int:
        return int(self._dice.choice(self._state.legal_actions()))

    def step(self, action: int) -> bool:
        state = self._state
        state.apply_action(action)
        self._others()
        state.observation_string(self._seat)
        if state.is_terminal():
            return True
        for legal in state.legal_actions():
            state.action_to_string(legal)
        return False


class PettingZoo:
    """Tic-tac-toe, one seat against a random one."""

    def __init__(self) -> None:
        from pettingzoo.classic import tictactoe_v3

        self._env, self._dice = tictactoe_v3.env(), random.Random(0)

    def begin(self, task: Task) -> None:
        self._env.reset(seed=task.seed)
        if task.seed % 2:
            self._env.step(self.choose())

    def choose(self) -> int:
        mask = self._env.last()[0]["action_mask"]
        return self._dice.choice([place for place, legal in enumerate(mask) if legal])

    def step(self, action: int) -> bool:
        self._env.step(action)
        if not self._ended():
            self._env.step(self.choose())
        return self._ended()

    def _ended(self) -> bool:
        _, _, terminated, truncated, _ = self._env.last()
        return bool(terminated or truncated)


class TextWorld:
    """A compiled game of coin collecting, the same ones that ours plays."""

    def __init__(self) -> None:
        import textworld

        from palaestra.environments.families.textworld.games import LEVELS, story_file

        asked = textworld.EnvInfos(
            feedback=True, score=True, won=True, lost=True, facts=True,
            admissible_commands=True, policy_commands=True,
        )  # fmt: skip
        self._start = lambda seed: textworld.start(
            str(story_file(LEVELS["coin-easy"], seed)), request_infos=asked
        )
        self._dice = random.Random(0)

    def begin(self, task: Task) -> None:
        self._env = self._start(task.seed)
        self._state = self._env.reset()

    def choose(self) -> str:
        return self._dice.choice(self._state["admissible_commands"])

    def step(self, action: str) -> bool:
        self._state, _, done = self._env.step(action)
        return bool(done)


PACKAGES: dict[str, Callable[[], Driver]] = {
    "gymnasium/Taxi-v4": lambda: Gymnasium("Taxi-v4"),
    "gymnasium/CliffWalking-v1": lambda: Gymnasium("CliffWalking-v1"),
    "gymnasium/FrozenLake-v1": lambda: Gymnasium("FrozenLake-v1"),
    "gymnasium/Blackjack-v1": lambda: Gymnasium("Blackjack-v1"),
    "minigrid/DoorKey-5x5": lambda: Gymnasium("MiniGrid-DoorKey-5x5-v0", "minigrid"),
    "babyai/GoToLocalS5N2": lambda: Gymnasium("BabyAI-GoToLocalS5N2-v0", "minigrid"),
    "textworld/coin-easy": TextWorld,
    "arcade/Pong": lambda: Gymnasium("ALE/Pong-v5", "ale_py", obs_type="ram"),
    "crafter/full": Crafter,
    "openspiel/tic_tac_toe": lambda: OpenSpiel("tic_tac_toe"),
    "openspiel/kuhn_poker": lambda: OpenSpiel("kuhn_poker"),
    "pettingzoo/tictactoe": PettingZoo,
    "minihack/Room-5x5": lambda: NetHack("MiniHack-Room-5x5-v0", "minihack"),
    "nethack/Score": lambda: NetHack("NetHackScore-v0", "nle"),
}


def rate(driver: Driver, seconds: float, played: TaskSet) -> float:
    """Steps per second of stepping, in the training tasks one after the other."""
    spent, steps, begun = 0.0, 0, 0
    while spent < seconds:
        driver.begin(played.task(Split.TRAIN, begun))
        begun += 1
        for _ in range(LONGEST):
            action = driver.choose()
            started = time.perf_counter()
            over = driver.step(action)
            spent += time.perf_counter() - started
            steps += 1
            if over or spent >= seconds:
                break
    return steps / spent


def compared(id: str, rounds: int, seconds: float) -> Result:
    """One row; raises ImportError or InputError where the package is missing."""
    ours, theirs, played = Ours(id), PACKAGES[id](), tasks(id)
    for driver in (ours, theirs):
        rate(driver, seconds / 5, played)  # warm up: the first steps of some packages take long
    found = alternate(
        lambda: rate(ours, seconds, played), lambda: rate(theirs, seconds, played), rounds
    )
    alone = 1 / found.theirs
    return Result(
        name=f"environment step: {id}, against the package alone",
        ratio=found.ours / found.theirs,  # of the medians, as the goal is and what is "more"
        goal=round(alone / (alone + max(SHARE * alone, ABSOLUTE)), 3),
        low=found.low,
        high=found.high,
        figures={
            "palaestra µs": 1e6 / found.ours,
            "package µs": 1e6 * alone,
            "more µs": 1e6 / found.ours - 1e6 * alone,
        },
    )


def measure(options: argparse.Namespace) -> list[Result]:
    found = []
    for id in options.ids or PACKAGES:
        try:
            found.append(compared(id, options.rounds, options.seconds))
        except (ImportError, InputError) as missing:
            print(f"{id}: not measured: {missing}", file=sys.stderr)
    if not found:
        raise PeerUnavailable("none of the worlds' packages is installed")
    return found


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids", nargs="*", metavar="ID", choices=[*PACKAGES, []], help="default: all"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of alternation (5)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of steps, a side and round")


if __name__ == "__main__":
    run(__doc__, measure, _options)
