"""DiscoveryWorld: complete cycles of scientific discovery, from hypothesis to test.

Ids: `discoveryworld/plant-nutrients-easy` and so on: eight themes in three difficulties, ten
single skills (`skills-doors`), and `tutorial`. Source: Jansen et al. 2024 (DiscoveryWorld).

Faithful: the package's scenarios, actions, time (every valid action is a step, also one that
fails), descriptions, score cards and ends. A task is solved when all of the package's tasks are
completed successfully. Progress is the mean of their scores, and 1 on success only; a reward is the
progress made.

Ours: actions are tool calls with object numbers (the package's JSON with named arguments), and the
observation is text (equal things in one direction are listed once, ground is left out). The package
draws its window for each observation; here nothing is drawn: see `game.py`. It has five variations
of a scenario (seeds 0 to 4): three are for training, one for validation, one for testing. The step
limits are the paper's: 100, and 1,000 for the hardest ("challenge").

The package has no solutions, so there is no oracle. Snapshots replay the actions.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import replace
from importlib.metadata import version

from discoveryworld.ScenarioMaker import SCENARIO_INFOS

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import Sampling
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.core.tool import NotACall, checked, parse_call
from palaestra.environments.base import Replayed, refused
from palaestra.environments.families.discoveryworld.game import Game
from palaestra.environments.families.discoveryworld.words import (
    DIRECTIONS,
    TOOLS,
    as_json,
    described,
    in_order,
)
from palaestra.environments.shared.replay_snapshot import encode

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


class DiscoveryWorld(
    Replayed,
    Sampling,
    id="discoveryworld",
    capabilities={"state_key", "snapshot", "progress"},
):
    """One scenario of the package."""

    tools = TOOLS
    package = VERSION

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._game: Game | None = None

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = super().spec_of(name)
        return replace(spec, typical_turns=LONG if SCENARIOS[name][1] == "Challenge" else SHORT)

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

    def _begin(self, task: Task) -> Observation:
        """Start the variation that the task names.

        Raises:
            InputError: the task names no variation.
        """
        variation = task.parameters.get("variation")
        if not isinstance(variation, int) or variation < 0:
            raise InputError(
                f"'{task.id}' names no variation of '{self.spec.name}'; take tasks from "
                "`palaestra.environments.registry.tasks`."
            )
        self._game = Game(*SCENARIOS[self.spec.name], variation)
        description = " ".join(each["taskDescription"].strip() for each in self._game.tasks)
        return Observation(f"Task: {description}\n{self._describe()}")

    def _act(self, action: Action) -> Transition:
        game = self._running()
        try:
            call = checked(action.call, TOOLS) if action.call else parse_call(action.text, TOOLS)
        except NotACall as error:
            return refused(str(error))
        if (call.name == "choose_dialog_option") != game.in_dialog:
            state = (
                "You are in a talk: choose"
                if game.in_dialog
                else "You are in no talk: do not choose"
            )
            return refused(f"{state} a dialog option.")
        before = self.progress()
        game.act(as_json(in_order(call)))
        tasks = game.tasks
        return Transition(
            Observation(self._describe()),
            reward=self.progress() - before,
            terminated=bool(tasks) and all(task["completed"] for task in tasks),
            success=self._solved(),
        )

    def state_key(self) -> str:
        """Hash the history of actions: the package's world cannot be compared."""
        history = encode(self._current(), self._past)
        return hashlib.blake2b(history, digest_size=12).hexdigest()

    def progress(self) -> float:
        """Return the mean of the tasks' scores; 1 on success only."""
        tasks = self._running().tasks
        if self._solved():
            return 1.0
        mean = sum(task["scoreNormalized"] for task in tasks) / max(1, len(tasks))
        return min(mean, 0.99)

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a tool call that makes sense now, with objects within reach."""
        game = self._running()
        talk = game.seen["dialog_box"]
        if game.in_dialog:
            options = talk.get("dialogOptions") or {1: ""}
            return Action(f"choose_dialog_option(option={rng.choice(list(options))})")
        seen = game.seen
        near = [*seen["inventoryObjects"], *seen["accessibleEnvironmentObjects"]]
        things = [each["uuid"] for each in near]
        moves = ["move_direction", "rotate_direction"]
        reach = [tool.name for tool in TOOLS if "object" in tool.parameters["properties"]]
        name = rng.choice(moves + (reach if things else []))
        takes = next(tool for tool in TOOLS if tool.name == name).parameters["properties"]
        arguments = {key: rng.choice(DIRECTIONS if key == "direction" else things) for key in takes}
        return Action(
            f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        )

    def _solved(self) -> bool:
        tasks = self._running().tasks
        return bool(tasks) and all(task["completedSuccessfully"] for task in tasks)

    def _describe(self) -> str:
        game = self._running()
        return described(game.seen, list(game.listTeleportLocationsDict()))

    def _running(self) -> Game:
        if self._game is None:
            raise InputError("This DiscoveryWorld has no task yet; call reset with a task first.")
        return self._game
