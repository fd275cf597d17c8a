"""Worlds whose workers are killed in the middle of a step, by the tests that wait for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.task import Task, TaskSet
from palaestra.environments import registry
from palaestra.environments.wrappers.wrapper import Wrapper

MARKS = "PALAESTRA_TESTS_MARKS"  # a folder
WHERE = "PALAESTRA_TESTS_WHERE"  # kind of task, e.g. train
ID = f"{__name__}:Mortal/babyai/GoToObjS4"


class Around(Wrapper):
    """A real world, named by its id."""

    def __init__(self, name: str) -> None:
        super().__init__(registry.make(name))

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return registry.spec(name)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)


class Dragging(Around):
    """Takes its time, so that a random moment is likely to be one of a step."""

    def step(self, action: Action) -> Transition:
        time.sleep(0.02)
        return super().step(action)


class Mortal(Around):
    """Waits to be killed in the steps whose marks are missing."""

    here = False

    def reset(self, task: Task) -> Observation:
        self.here = task.id.startswith(os.environ[WHERE])
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        missing = [n for n in range(2) if not mark(n).exists()]
        if self.here and self.turn == 1 and missing:
            mark(missing[0]).write_text(str(os.getpid()))
            time.sleep(3600)
        return super().step(action)


def mark(number: int) -> Path:
    return Path(os.environ[MARKS]) / str(number)


@contextmanager
def killing() -> Iterator[list[int]]:
    """Kill each worker of this process that waits for it; gives the ids of those killed."""
    killed: list[int] = []
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            for number in range(2):
                written = mark(number).read_text() if mark(number).exists() else ""
                if written and int(written) not in killed:
                    psutil.Process(int(written)).kill()
                    killed.append(int(written))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
