"""Environments that break in every way a real one can, and one that does not."""

from __future__ import annotations

import ctypes
import os
import random
import stat
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from palaestra.core.environment import (
    Action,
    Environment,
    Observation,
    Spec,
    Tool,
    Transition,
)
from palaestra.core.errors import MissingSystemPart
from palaestra.core.task import Task, TaskSet
from palaestra.environments import registry
from palaestra.environments.wrappers.wrapper import Wrapper


class Counting(Environment, capabilities={"state_key", "progress", "oracle", "admissible"}):
    """Healthy: adds up its inputs, starting from the task's seed, until ten steps are made."""

    tools = (Tool("add", "Add a number.", {"type": "object", "properties": {"n": {}}}),)
    goal = 10

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.total = self.made = 0

    @property
    def instructions(self) -> str:
        return "Say numbers; they are added up."

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.total, self.made = task.seed, 0
        return Observation(f"start at {self.total}")

    def step(self, action: Action) -> Transition:
        if not action.text.lstrip("-").isdigit():
            return Transition(Observation("not a number"), valid=False)
        self.total += int(action.text)
        self.made += 1
        done = self.made >= self.goal
        return Transition(
            Observation(f"total {self.total} after {self.made}"),
            reward=self.total / 7,
            terminated=done,
            success=done,
            info={"history": [self.made, {"total": self.total}]},
        )

    def state_key(self) -> str:
        return f"{self.total}/{self.made}"

    def progress(self) -> float:
        return self.made / self.goal

    def oracle(self) -> Sequence[Action]:
        return [Action("1")] * (self.goal - self.made)

    def admissible(self) -> Sequence[str]:
        return ["1", "2"]


class Crashing(Counting):
    """Ends its process where its name says: making, reset, step, oracle or close."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._reach("making")

    def _reach(self, place: str) -> None:
        if self.spec.name == place:
            print("about to crash", file=sys.stderr, flush=True)
            os._exit(3)

    def reset(self, task: Task) -> Observation:
        self._reach("reset")
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        if self.made == 1:
            self._reach("step")
        return super().step(action)

    def oracle(self) -> Sequence[Action]:
        self._reach("oracle")
        return super().oracle()

    def close(self) -> None:
        self._reach("close")


class Hanging(Crashing):
    """Never returns from where its name says."""

    def _reach(self, place: str) -> None:
        if self.spec.name == place:
            time.sleep(3600)


class Doomed(Crashing):
    """Waits where its name says, the first time; leaves a file there that the variable names."""

    MARK = "PALAESTRA_TESTS_MARK"

    def _reach(self, place: str) -> None:
        mark = Path(os.environ[self.MARK])
        if self.spec.name == place and not mark.exists():
            mark.touch()
            time.sleep(3600)


class Raising(Crashing):
    """Raises where its name says; `exit` is a library that calls sys.exit in a step."""

    def _reach(self, place: str) -> None:
        if self.spec.name == place:
            raise ZeroDivisionError(f"in {place}")
        if self.spec.name == "exit" and place == "step":
            sys.exit(1)


class NeedsPart(Counting):
    """Finds out that a system part is missing when it is made, or in its first reset."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        if name == "making":
            raise MissingSystemPart("Java is not installed; install it.")

    def reset(self, task: Task) -> Observation:
        raise MissingSystemPart("Java is not installed; install it.")


class Rubbish(Counting):
    """Returns what the contract does not allow; the name says what."""

    def reset(self, task: Task) -> Observation:
        if self.spec.name == "reset":
            return "words"  # type: ignore[return-value]
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        name = self.spec.name
        if self.made == 1:
            wrong: dict[str, Any] = {
                "none": None,
                "tuple": (Observation("x"), 0.0, False, False, {}),
                "text": Transition(Observation(5)),  # type: ignore[arg-type]
                "flag": Transition(Observation("x"), terminated=1),  # type: ignore[arg-type]
                "nan": Transition(Observation("x"), reward=float("nan")),
                "info": Transition(Observation("x"), info={"a": object()}),
                "surrogate": Transition(Observation("\ud800")),
                "huge": Transition(Observation("x" * (65 * 2**20))) if name == "huge" else 0,
            }
            if name in wrong:
                return wrong[name]  # type: ignore[no-any-return]
        return super().step(action)

    def progress(self) -> float:
        if self.spec.name == "signals" and self.made == 1:
            return "half"  # type: ignore[return-value]
        if self.spec.name in ("progress-nan", "progress-inf") and self.made == 1:
            return float(self.spec.name.removeprefix("progress-"))
        return super().progress()


class Intruding(Counting):
    """Writes into every pipe of its process, as a confused native library might."""

    GARBAGE: ClassVar[dict[str, bytes]] = {
        "oversized": b"\xff" * 8,
        "json": b"\x00\x00\x00\x05+{[}]",
        "shape": b"\x00\x00\x00\x0b+[{},{},{}]",
        "kind": b"\x00\x00\x00\x02xx",
        "empty": b"\x00\x00\x00\x00",
    }

    def step(self, action: Action) -> Transition:
        if self.made == 1:
            for number in range(3, 64):
                try:
                    if stat.S_ISFIFO(os.fstat(number).st_mode):
                        os.write(number, self.GARBAGE[self.spec.name])
                except OSError:
                    continue
        return super().step(action)


class Ballooning(Counting):
    """Takes more and more memory in its second step; `leak`: some in each, and keeps it."""

    kept: ClassVar[list[bytearray]] = []

    def step(self, action: Action) -> Transition:
        if self.spec.name == "leak":
            self.kept.append(bytearray(os.urandom(2**20)) * 24)
        elif self.made == 1:
            taken = []
            while True:
                taken.append(bytearray(os.urandom(2**20)) * 8)
                time.sleep(0.002)
        return super().step(action)


class Afflicted(Wrapper):
    """A real world, named by its id, in which one step in ten fails with one of five errors."""

    PLANS: ClassVar[tuple[str, ...]] = ("crash", "hang", "slow", "garbage", "memory")
    SHARE = 0.1

    def __init__(self, name: str) -> None:
        super().__init__(registry.make(name))

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return registry.spec(name)

    def step(self, action: Action) -> Transition:
        rng = random.Random(f"{self.seed} {self.turn}")
        if rng.random() >= self.SHARE:
            return super().step(action)
        match rng.choice(self.PLANS):
            case "crash":
                os._exit(3)
            case "hang":
                time.sleep(3600)
            case "slow":
                time.sleep(0.3)
            case "garbage":
                return Transition(Observation("x"), reward=float("nan"))
            case "memory":
                taken = []
                while True:
                    taken.append(bytearray(b"x") * 2**26)
                    time.sleep(0.01)
        return super().step(action)


class Slow(Counting):
    """Takes a third of a second for each step."""

    def step(self, action: Action) -> Transition:
        time.sleep(0.3)
        return super().step(action)


class Plodding(Counting):
    """Takes a second for each step in which it is let run, however long it is stopped."""

    def step(self, action: Action) -> Transition:
        for _ in range(50):
            time.sleep(0.02)
        return super().step(action)


class Napping(Counting):
    """Sleeps through each word that names seconds ("nap 3"); `honest`: it cannot be repeated."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.spec = replace(self.spec, deterministic=name != "honest")

    def step(self, action: Action) -> Transition:
        if action.text.startswith("nap "):
            time.sleep(float(action.text.split()[1]))
        return super().step(action)


class Waiting(Counting, waits=True):
    """Waits for another process, by declaration.

    "nap 3" sleeps, "meet" waits until four of this process do, "crash" ends it.
    """

    meeting: ClassVar[threading.Barrier] = threading.Barrier(4)

    def step(self, action: Action) -> Transition:
        match action.text.split():
            case ["nap", seconds]:
                time.sleep(float(seconds))
            case ["meet"]:
                self.meeting.wait(20.0)
            case ["crash"]:
                time.sleep(0.2)  # until others are called
                os._exit(3)
        return super().step(action)


class Lonely(Counting):
    """Notices another call in its process while it is in its own."""

    def step(self, action: Action) -> Transition:
        before = {id for id, frame in sys._current_frames().items() if _in_a_nap(frame)}
        return replace(super().step(action), info={"naps": len(before)})


def _in_a_nap(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is Waiting.step.__code__:
            return True
        frame = frame.f_back
    return False


class Chance(Counting, deterministic=False):
    """Differs from process to process; `honest` says so, any other name does not."""

    def step(self, action: Action) -> Transition:
        seen = super().step(action)
        return Transition(Observation(f"{seen.observation.text} in {os.getpid()}"))


class SecretChance(Chance, deterministic=True):
    """The same, but it claims to be deterministic."""


class Printing(Counting):
    """Prints to every standard output, from Python and below it, and reads the input."""

    def step(self, action: Action) -> Transition:
        print("hello" * 1000)
        os.write(1, b"raw\n" * 1000)
        os.system("echo from a program")
        assert sys.stdin.read() == ""
        return super().step(action)


class Surroundings(Counting):
    """Tells where it runs."""

    def reset(self, task: Task) -> Observation:
        super().reset(task)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONPATH")
        known = {name: os.environ.get(name) for name in names}
        order = "".join({"a", "b", "c", "d", "e"})
        return Observation(f"{os.getpid()}|{known}|{os.nice(0)}|{order}")


class Parental(Counting):
    """Starts a program of its own, and hangs in `step` beside it."""

    def reset(self, task: Task) -> Observation:
        super().reset(task)
        self.child = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
        return Observation(f"{os.getpid()} {self.child}")

    def step(self, action: Action) -> Transition:
        time.sleep(3600)
        raise AssertionError


class Blocking(Counting):
    """Hangs below Python, without letting any other thread run."""

    def reset(self, task: Task) -> Observation:
        ctypes.PyDLL(None).sleep(3600)
        raise AssertionError


class Marking(Counting):
    """Leaves a file, named by the task, when it is closed."""

    def reset(self, task: Task) -> Observation:
        self.path = str(task.parameters["path"])
        return super().reset(task)

    def close(self) -> None:
        with open(self.path, "w") as file:
            file.write("closed")
