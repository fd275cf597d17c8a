"""The tasks of a synthesis as an environment: `synthesised/FOLDER`.

FOLDER is the path of what `palaestra synthesise` made, and with `:all`, `:discover` or `:code` the
agent has other tools, as in `apps`. The tasks are those of which there is a dialogue to imitate:
they passed the gate, and no two are the same. Training, validation and test have worlds of their
own; in a folder with fewer than three worlds they have tasks of their own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from palaestra.core.dealt_splits import deal
from palaestra.core.environment import Spec, declared
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import called
from palaestra.environments.families.apps.drawing import Drawn
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.surfaces import SURFACES
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.synthesised.finished_folder import (
    TASK,
    folder_of,
    listed,
    made_in,
    name_parts,
    state_of,
)
from palaestra.environments.families.synthesised.lines import SIZE, suite_of, task_of, world_of
from palaestra.environments.families.synthesised.operated_goals import is_operated, operated_task

SOURCES = ("tasks", "explorations", "told", "twins")  # stages that make tasks
TASKS = 256  # that are remembered


class Folder(NamedTuple):
    """The tasks of a finished synthesis."""

    worlds: list[Any]  # lines of the stage `worlds`
    tasks: Mapping[int, Any]  # lines of the stages `tasks` and `explorations`, by their number
    splits: Mapping[Split, list[int]]
    calls: int  # that a task may need: an estimate for its turns


class SynthesisedApps(Apps, id="synthesised"):
    """Apps with the tasks of a folder."""

    def __init__(self, name: str = "") -> None:
        """Read the folder; raises InputError as `finished_stages` does."""
        self._path, form = name_parts(name, SURFACES)
        super().__init__(f":{form}" if form else "")
        self.spec = self.spec_of(name)

    @classmethod
    def names(cls) -> list[str]:
        """Return none: folders are not listed."""
        return []

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = declared(cls).named(name)
        path, form = name_parts(name, SURFACES)
        if not path:
            return spec
        steps = 2 if form in ("discover", "code") else 1
        return replace(spec, typical_turns=4 + steps * folder(path).calls)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        path = folder_of(environment, SURFACES)
        return listed(environment, folder(path).splits if path else {})

    @classmethod
    def factors(cls, name: str) -> Mapping[str, Sequence[str]]:
        """Return other tools for the same tasks."""
        path, form = name_parts(name, SURFACES)
        forms = {"task": path} | {one: f"{path}:{one}" for one in SURFACES if one != "task"}
        return {"tools": [other for one, other in forms.items() if one != (form or "task")]}

    def draw(self, task: Task) -> Drawn:
        found = folder(self._path)
        number = dict(task.parameters).get(TASK)
        if list(task.parameters) != [TASK] or number not in found.splits.get(task.split, ()):
            raise InputError(
                f"The task '{task.id}' with the parameters {dict(task.parameters)} is none of "
                f"'{self.spec.id}'; take one from its task set."
            )
        return _drawn(self._path, state_of(self._path), number)


def folder(path: str) -> Folder:
    """Return the tasks of a folder; raises InputError as `finished_stages` does."""
    settings, made = made_in(path)
    shown = {int(one["task"]["id"].rpartition("/")[2]) for one in made["dialogues"]}
    lines = task_lines(made)
    tasks = {number: lines[number] for number in sorted(shown)}
    explored = settings["explore"]["calls"] if "explorations" in made else 0
    splits = deal({number: task["world"] for number, task in tasks.items()})
    return Folder(made["worlds"], tasks, splits, max(6 * settings["goals"], explored))


def task_lines(made: Mapping[str, list[Any]]) -> list[Any]:
    """Return the lines of all stages that make tasks; a task's number is its place among them."""
    return [line for stage in SOURCES for line in made.get(stage, [])]


def is_repeated(tasks: Sequence[Mapping[str, Any]], number: int) -> bool:
    """Return whether an earlier task asks for the same in the same world."""
    task = tasks[number]
    return any(
        before["world"] == task["world"] and before["goals"] == task["goals"]
        for before in tasks[:number]
    )


def drawn_task(line: Mapping[str, Any], world: Mapping[str, Any]) -> Drawn:
    """Return a task with all that its episodes need.

    Args:
        line: of the stage `tasks`.
        world: its line of the stage `worlds`.
    """
    suite = suite_of(world, user=is_operated(line))
    template = world_template(suite, SIZE, world["seed"])
    if is_operated(line):
        with closing(world_of(world, suite)) as before:
            task: Composition = operated_task(line, before)
    else:
        task = task_of(line, suite)
    planted = task.planted(template)
    with closing(World(suite, planted, START)) as untouched:
        if task.policy:  # what the reference calls would tell whether it is forbidden
            apis = called(untouched, task, random.Random(0))
        else:
            apis = [call.api for call in task.reference(untouched)[0].calls]
        return Drawn(suite, planted, task, task.ways(untouched), tuple(dict.fromkeys(apis)))


@lru_cache(maxsize=TASKS)
def _drawn(path: str, _: str, number: int) -> Drawn:
    found = folder(path)
    line = found.tasks[number]
    return drawn_task(line, found.worlds[line["world"]])
