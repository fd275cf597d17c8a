"""DiscoveryWorld: whole cycles of discovery, from a hypothesis to its test, in a small world.

Ids: `discoveryworld/plant-nutrients-easy` and so on: eight themes in three difficulties, ten
single skills (`skills-doors`), and `tutorial`. Source: Jansen et al. 2024 (DiscoveryWorld).

Faithful: the package's scenarios, actions, time (every action that is understood is a step, also
one that fails), descriptions, score cards and ends. A task is solved when all of the package's
tasks are completed successfully. Progress is the mean of their scores, and 1 on success only; a
reward is the progress made.

Ours: actions are calls of tools with numbers of objects (the package's JSON with names for its
arguments), and the description is words (what is equal in one direction is told once, ground not
at all). The package draws its window for each observation; here nothing is drawn: see
`discoveryworld_game.py`. It knows five variations of a scenario (seeds 0 to 4): three are for
training, one for validation, one for testing. The limits of steps are the paper's: 100, and 1,000
for the hardest ("challenge").

The package has no solutions, so there is no oracle. Snapshots replay the actions.
"""

from __future__ import annotations

import hashlib
import random
import re
from importlib.metadata import version

from discoveryworld.ScenarioMaker import SCENARIO_INFOS

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.core.tool import NotACall, checked, parse_call
from palaestra.environments.apps.past import read, written
from palaestra.environments.snapshots import opened, sealed
from palaestra.environments.text.discoveryworld_game import Game
from palaestra.environments.text.discoveryworld_words import (
    TOOLS,
    WAYS,
    as_json,
    described,
    in_order,
)

VERSION = version("discoveryworld")
VARIATIONS = {Split.TRAIN: (0, 1, 2), Split.VALIDATION: (3,), Split.TEST: (4,)}
SHORT, LONG = 100, 1000  # steps


def _slug(scenario: str, difficulty: str, several: bool) -> str:
    words = re.sub(r"Small Skills: (.*) Test", r"skills \1", scenario)
    words = re.sub(r"[^a-z]+", "-", words.replace("It's (not)", "not").lower()).strip("-")
    return f"{words}-{difficulty.lower()}" if several else words


SCENARIOS: dict[str, tuple[str, str]] = {
    _slug(scenario, difficulty, len(about["difficulty"]) > 1): (scenario, difficulty)
    for scenario, about in SCENARIO_INFOS.items()
    for difficulty in about["difficulty"]
}


class DiscoveryWorld(Environment):
    """One scenario of the package."""

    capabilities = frozenset({Capability.STATE_KEY, Capability.SNAPSHOT, Capability.PROGRESS})
    tools = TOOLS

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._game: Game | None = None
        self._task: Task | None = None
        self._past: list[Action] = []
        self._over = False

    @classmethod
    def names(cls) -> list[str]:
        return list(SCENARIOS)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        rows = {split: [{"variation": n} for n in own] for split, own in VARIATIONS.items()}
        return ListedTasks(environment, rows=rows)

    @property
    def instructions(self) -> str:
        calls = "\n".join(tool.signature for tool in TOOLS)
        return (
            "You are a scientist in a small world. Find out what is asked, by doing. Objects have "
            f"numbers, in brackets. Reply with one call of a tool:\n{calls}"
        )

    @property
    def typical_turns(self) -> int:
        return LONG if SCENARIOS[self.name][1] == "Challenge" else SHORT

    def reset(self, task: Task) -> Observation:
        """Start the variation that the task names.

        Raises:
            InputError: it names none.
        """
        variation = task.parameters.get("variation")
        if not isinstance(variation, int) or variation < 0:
            raise InputError(
                f"'{task.id}' names no variation of '{self.name}'; take tasks from "
                "`palaestra.environments.registry.tasks`."
            )
        self._game = Game(*SCENARIOS[self.name], variation)
        self._task, self._past, self._over = task, [], False
        asked = " ".join(each["taskDescription"].strip() for each in self._game.tasks)
        return Observation(f"Task: {asked}\n{self._told()}")

    def step(self, action: Action) -> Transition:
        game = self._running()
        if self._over:
            return Transition(Observation("It is over."), valid=False)
        try:
            call = checked(action.call, TOOLS) if action.call else parse_call(action.text, TOOLS)
        except NotACall as why:
            return Transition(Observation(str(why)), valid=False)
        if (call.name == "choose_dialog_option") != game.in_dialog:
            said = (
                "You are in a talk: choose"
                if game.in_dialog
                else "You are in no talk: do not choose"
            )
            return Transition(Observation(f"{said} a dialog option."), valid=False)
        before = self.progress()
        game.act(as_json(in_order(call)))
        self._past.append(action)
        tasks = game.tasks
        self._over = bool(tasks) and all(task["completed"] for task in tasks)
        return Transition(
            Observation(self._told()),
            reward=self.progress() - before,
            terminated=self._over,
            success=self._solved(),
        )

    def state_key(self) -> str:
        """Of all that happened: the package's world cannot be compared."""
        self._running()
        assert self._task is not None
        history = written(self._task, self._past)
        return hashlib.blake2b(history, digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        self._running()
        assert self._task is not None
        return sealed(self._id, VERSION, written(self._task, self._past))

    def restore(self, snapshot: bytes) -> None:
        task, past = read(opened(snapshot, self._id, VERSION))
        self.reset(task)
        for action in past:
            self.step(action)

    def progress(self) -> float:
        """The mean of the tasks' scores; 1 on success only."""
        tasks = self._running().tasks
        if self._solved():
            return 1.0
        mean = sum(task["scoreNormalized"] for task in tasks) / max(1, len(tasks))
        return min(mean, 0.99)

    def sample_action(self, dice: random.Random) -> Action:
        """A tool that makes sense now, with objects within reach."""
        game = self._running()
        talk = game.seen["dialog_box"]
        if game.in_dialog:
            options = talk.get("dialogOptions") or {1: ""}
            return Action(f"choose_dialog_option(option={dice.choice(list(options))})")
        seen = game.seen
        near = [*seen["inventoryObjects"], *seen["accessibleEnvironmentObjects"]]
        things = [each["uuid"] for each in near]
        moves = ["move_direction", "rotate_direction"]
        reach = [tool.name for tool in TOOLS if "object" in tool.parameters["properties"]]
        name = dice.choice(moves + (reach if things else []))
        takes = next(tool for tool in TOOLS if tool.name == name).parameters["properties"]
        drawn = {key: dice.choice(WAYS if key == "direction" else things) for key in takes}
        return Action(f"{name}({', '.join(f'{key}={value!r}' for key, value in drawn.items())})")

    def _solved(self) -> bool:
        tasks = self._running().tasks
        return bool(tasks) and all(task["completedSuccessfully"] for task in tasks)

    def _told(self) -> str:
        game = self._running()
        return described(game.seen, list(game.listTeleportLocationsDict()))

    def _running(self) -> Game:
        if self._game is None:
            raise InputError("This DiscoveryWorld has no task yet; call reset with one first.")
        return self._game

    @property
    def _id(self) -> str:
        return f"discoveryworld/{self.name}"
