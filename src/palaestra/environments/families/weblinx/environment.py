"""WebLINX, offline: what would the navigator do or say next?

`weblinx/FOLDER`: one task is one turn of a recorded demonstration. The agent sees what the user
said, the last turns, and the page; its one action is compared with the recorded one
(`turn_scores.py`). The reward is that score, and the task is solved where the action is the same.
Dialogue acts and browser actions are gestures of one action space. Where the folder has
screenshots, the tasks are the turns with one.

The tasks are those of the folder's `splits.json` ("train", "valid" and "test_iid");
`weblinx/FOLDER:test_web` has as tests those of another of its splits. Without the file,
demonstrations are dealt out by website: those of the test were never seen in training.

Source: Lù, Kasner and Reddy 2024 (WebLINX).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from palaestra.core.element import Box, Element
from palaestra.core.element_text import is_interactive
from palaestra.core.environment import Action, Capability, Observation, Spec, Transition
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.gesture import Gesture, Id, Point, Target
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.gestures.locating import element_of
from palaestra.core.rare_capabilities import Elemental, Pictured, Sampling
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.environments.base import hashed, refused
from palaestra.environments.families.weblinx.turn_scores import by_box, turn_score
from palaestra.environments.shared.known_answer import KnownAnswer
from palaestra.environments.shared.png_images import size_of
from palaestra.store.exchange.weblinx_demonstrations import (
    OURS,
    Demonstration,
    DemonstrationTurn,
    SeenPage,
    demonstrations_in,
    has_screenshots,
    named_demonstration,
    read_demonstration,
    splits_of,
)

TESTS = ("test_iid", "test_web")  # the first of these is the test split, unless another is named
DEMONSTRATION, TURN = "demonstration", "turn"  # the parameters of a task
UTTERANCES, TURNS = 5, 5  # of the user, and of both, that the agent sees, as in WebLINX
INSTRUCTIONS = """You use a web browser for a user, who talks with you. You see what the user \
said, the last turns, and the page. Reply with what you do or say next, one gesture and nothing \
else, such as:
click [12]
type [7] 'hello'
press [7] 'Enter'
select [5] 'Red'
go 'http://example.org/'
scroll down 300
say 'It is done.'
A press of Enter submits a form."""


class WebLinx(
    KnownAnswer,
    Pictured,
    Elemental,
    Sampling,
    id="weblinx",
    capabilities={"elements", "state_key", "snapshot"},
    typical_turns=1,
):
    """The turns of a folder of demonstrations, one in each task."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._folder = folder_and_split(name)[0]
        self._seen = Capability.PICTURE in self.spec.capabilities
        self._turn: DemonstrationTurn | None = None
        self._page = SeenPage([], {})
        self._picture, self._scale = b"", 1.0  # pixels of the picture for one of the window
        self._said = ""

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = super().spec_of(name)
        if name and has_screenshots(folder_and_split(name)[0]):
            return replace(spec, capabilities=spec.capabilities | {Capability.PICTURE})
        return spec

    @classmethod
    def names(cls) -> list[str]:
        """Return no names: these are folders."""
        return []

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        name = re.split("[?@]", environment)[0].partition("/")[2]
        if not name:
            return ListedTasks(environment)  # of the family itself, without a folder
        seen = has_screenshots(folder_and_split(name)[0])
        rows = {
            split: [
                {DEMONSTRATION: demonstration.name, TURN: turn.index}
                for demonstration in found
                for turn in demonstration.predicted(seen=seen)
            ]
            for split, found in split_demonstrations(name).items()
        }
        return ListedTasks(environment, rows=rows)

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS

    def _begin(self, task: Task) -> Observation:
        """Show a turn's history and page.

        Raises:
            InputError: the task is not one of this folder's, or a file of it is invalid.
        """
        name, number = task.parameters.get(DEMONSTRATION), task.parameters.get(TURN)
        demonstration = named_demonstration(self._folder, str(name))
        known = demonstration.predicted(seen=self._seen)
        turn = next((one for one in known if one.index == number), None)
        if turn is None:
            raise InputError(
                f"'{task.id}' is no turn of {self._folder}; take the tasks of its environment."
            )
        self._turn, self._page = turn, demonstration.page(turn)
        self._said = history(demonstration, turn)
        if self._seen:
            self._picture = demonstration.picture(turn).read_bytes()
            self._scale = size_of(self._picture)[0] / turn.size[0] if turn.size else 1.0
        return Observation(f"{self._said}\n{self._page.text}".strip())

    def _act(self, action: Action) -> Transition:
        recorded = self._recorded()
        try:
            gesture = gesture_in(action)
        except InputError as wrong:
            return refused(str(wrong))
        score = turn_score(gesture, recorded, self._box(gesture.target), self._box(recorded.target))
        self._said = f"The recorded action is {score.overall:.0%} the same."
        parts = {"intent": score.intent, "element": score.element, "text": score.text}
        return Transition(
            Observation(self._said),
            reward=score.overall,
            terminated=True,
            success=score.overall >= 1.0,
            info={name: round(part, 4) for name, part in parts.items() if part is not None},
        )

    def elements(self) -> Sequence[Element]:
        """Return what the page has, with boxes in pixels of the picture, if there is one."""
        self._current()
        if self._scale == 1.0:
            return self._page.elements
        return [replace(one, box=_scaled(one.box, self._scale)) for one in self._page.elements]

    def picture(self) -> bytes:
        self._current()
        if not self._seen:
            self._undeclared(Capability.PICTURE)
        return self._picture

    def caption(self) -> str:
        return self._said

    def state_key(self) -> str:
        task = self._current()
        return hashed(sorted(task.parameters.items()), self._over, self._said)

    def answer(self) -> Action:
        """Return the recorded action."""
        return Action(write_line(self._recorded()))

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a click on an element of the page, or something to say."""
        self._current()
        some = [one for one in self._page.elements if is_interactive(one)]
        if some and rng.random() < 0.7:
            return Action(write_line(Gesture("click", Id(rng.choice(some).id))))
        return Action(write_line(Gesture("say", text=rng.choice(("Done.", "Yes.", "Which one?")))))

    def _recorded(self) -> Gesture:
        self._current()
        assert self._turn is not None and self._turn.gesture is not None
        return self._turn.gesture

    def _box(self, target: Target | None) -> Box | None:
        """Return the box of what a target stands for; None where there is no such thing."""
        boxes = self._page.boxes
        if isinstance(target, Point):
            width, height = (self._turn.size if self._turn else None) or (0, 0)
            shares = target.unit == "shares"
            across, down = (width, height) if shares else (1 / self._scale, 1 / self._scale)
            return by_box(boxes, target.x * across, target.y * down)
        if target is None or isinstance(target, Id):
            return boxes.get(target.id) if target else None
        try:
            found = element_of(target, self.elements())
        except InputError:
            return None
        parents = {element.id: element.parent for element in self.elements()}
        at: str | None = found.id
        while at is not None and at not in boxes:  # a text has the box of what is around it
            at = parents.get(at)
        return None if at is None else boxes[at]


def _scaled(box: Box | None, by: float) -> Box | None:
    return box and Box(box.x * by, box.y * by, box.width * by, box.height * by)


def history(demonstration: Demonstration, turn: DemonstrationTurn) -> str:
    """Return what led to a turn: the user's first and latest words, and the last turns."""
    before = demonstration.turns[: turn.index]
    earlier, recent = before[: max(0, len(before) - TURNS)], before[-TURNS:]
    said = [one.words for one in earlier if one.speaker == "instructor"]
    if len(said) > UTTERANCES:
        said = [said[0], *said[1 - UTTERANCES :]]
    lines = [f"User: {words}" for words in said]
    for one in recent:
        if one.speaker == "instructor":
            lines.append(f"User: {one.words}")
        else:
            lines.append(f"You: {one.words}")
    if turn.url:
        lines.append(f"Page: {turn.url}")
    return "\n".join(lines)


def folder_and_split(name: str) -> tuple[Path, str]:
    """Return the folder and the split that an environment's name says, as `data:test_web`.

    Raises:
        InputError: there is no such folder, it has no demonstrations, or no such split.
    """
    path, colon, split = name.rpartition(":")
    if not colon:
        path, split = name, ""
    if not path:
        raise InputError("'weblinx' names no folder; write weblinx/FOLDER with demonstrations.")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InputError(f"The folder '{path}' of 'weblinx/{name}' does not exist; check the path.")
    demonstrations_in(folder)
    if split and split not in (known := splits_of(folder)):
        raise UnknownName("split of these demonstrations", split, known)
    return folder, split


def split_demonstrations(name: str) -> dict[Split, list[Demonstration]]:
    """Return the demonstrations of each split; raises InputError as `folder_and_split` does."""
    folder, named = folder_and_split(name)
    there, splits = demonstrations_in(folder), splits_of(folder)
    tests = [named] if named else [split for split in TESTS if split in splits]
    chosen = {} if named else {ours: splits.get(theirs, []) for theirs, ours in OURS.items()}
    chosen[Split.TEST] = splits[tests[0]] if tests else []
    return {
        split: [read_demonstration(there[one]) for one in names] for split, names in chosen.items()
    }
