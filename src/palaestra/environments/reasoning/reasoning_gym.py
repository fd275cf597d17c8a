"""Reasoning Gym: puzzles of a hundred kinds, made by procedure and scored by verifiers.

Ids: `reasoning/chain_sum` (a data set of the package, with its default settings),
`reasoning/chain_sum@2` (level 2 of the package's curriculum, counted from 0),
`reasoning/chain_sum+feedback` and `reasoning/chain_sum@2+feedback` (several tries).
Source: Stojanovski et al. 2025 (Reasoning Gym).

A task's puzzle is item 0 of the package's data set made with the task's seed and size 1, or,
where the size changes the item (acre), with the default size. The answer is what is between the
last `<answer>` tags, as the package extracts it, else all that was said, stripped. The package's
own verifier scores it; the score is the reward, once, at the end. Success is the full score.

Ours: with feedback there are four tries; after a wrong answer the agent is told so, with the
score where it is partial, and never the answer; the last answer's score is the reward. An
exception of a verifier counts as 0. Answers that a verifier would run as a program, or that fool
it or fill the memory, count as unreadable (`reasoning_guard.py`).

Left out: composite, game_of_life_halting (`EXCLUDED` says why). No oracle: boxnet and rush_hour,
which have no reference answers. Of propositional_logic's own answers, 7 in 1,000 do not get the
full score (all are "P"): there the oracle knows no way. Five data sets (isomorphic_strings,
knight_swap, polynomial_multiplication, ransom_note, word_ladder) choose from Python's sets, so
their puzzles also depend on PYTHONHASHSEED, which is 0 in palaestra's workers; a snapshot of
another puzzle is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from importlib.metadata import version

from reasoning_gym.utils import extract_answer

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Task, TaskSet
from palaestra.environments.reasoning.reasoning_sets import (
    FEEDBACK,
    UNANSWERED,
    Puzzle,
    parsed,
    puzzle,
    titles,
)
from palaestra.environments.snapshots import opened, sealed

TRIES = 4  # with feedback
FULL = 1 - 1e-9
EMPTY = "<answer></answer>"  # as right as any other in ab; an empty reply would be none
GUESSES = ("yes", "no", "True", "False", "0", "1", "2", "10")
VERSION = version("reasoning-gym")  # the module's own __version__ lags behind


class ReasoningGym(Environment):
    """One puzzle, answered in words."""

    capabilities = frozenset(
        {Capability.STATE_KEY, Capability.SNAPSHOT, Capability.PROGRESS, Capability.ORACLE}
    )
    free_text = True

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._said = parsed(name)
        self.capabilities = self.capabilities_of(name)  # type: ignore[misc]
        self._puzzle: Puzzle | None = None
        self._answers: list[str] = []
        self._best = self._last = 0.0  # scores

    @classmethod
    def names(cls) -> list[str]:
        """All without a level; a level can be added to those whose data set has a curriculum."""
        return [title + variant for title in titles() for variant in ("", FEEDBACK)]

    @classmethod
    def check_name(cls, name: str) -> None:
        parsed(name)

    @classmethod
    def capabilities_of(cls, name: str) -> frozenset[Capability]:
        unanswered = parsed(name).title in UNANSWERED
        return cls.capabilities - ({Capability.ORACLE} if unanswered else set())

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        tries = f" You have {TRIES} tries." if self._said.feedback else ""
        return (
            "Answer the question. Reply with the answer only, or reason first and end with "
            f"<answer>the answer</answer>.{tries}"
        )

    @property
    def typical_turns(self) -> int:
        return self._tries + 1  # and room for an empty reply

    def reset(self, task: Task) -> Observation:
        """Make the puzzle of `task.seed`.

        Raises:
            InputError: the task has parameters; a name says everything here.
        """
        if task.parameters:
            raise InputError(
                f"Reasoning tasks take no parameters, but '{task.id}' has "
                f"{', '.join(map(repr, task.parameters))}; choose a level by the name, "
                "such as 'chain_sum@2'."
            )
        return Observation(self._begin(self._made(task.seed)).question)

    def step(self, action: Action) -> Transition:
        asked = self._asked()
        if self._over:
            return Transition(Observation("It is over."), valid=False)
        if not action.text.strip():
            return Transition(Observation("Say your answer."), valid=False)
        self._try(asked, answer_in(action.text))
        return self._judged()

    def state_key(self) -> str:
        """The puzzle, how often it was tried and the best score so far."""
        seed = self._asked().seed
        return f"{self.name}/{seed}/{len(self._answers)}/{self._best!r}"

    def snapshot(self) -> bytes:
        """The seed and the answers, with a digest of the puzzle."""
        asked = self._asked()
        body = {"seed": asked.seed, "puzzle": _digest(asked), "answers": self._answers}
        return sealed(f"reasoning/{self.name}", VERSION, json.dumps(body).encode())

    def restore(self, snapshot: bytes) -> None:
        """Make the puzzle again, and give the answers again.

        Raises:
            InputError: it is no snapshot of this world, or this process makes another puzzle.
        """
        saved = json.loads(opened(snapshot, f"reasoning/{self.name}", VERSION))
        made = self._made(saved["seed"])
        if _digest(made) != saved["puzzle"]:
            raise InputError(
                f"The puzzle {saved['seed']} of '{self.name}' is another one in this process; "
                "start Python with the PYTHONHASHSEED with which the snapshot was made."
            )
        asked = self._begin(made)
        for answer in saved["answers"]:
            self._try(asked, answer)

    def progress(self) -> float:
        """The best score so far."""
        self._asked()
        return 1.0 if self._solved else self._best

    def oracle(self) -> list[Action]:
        """The package's own answer, if its own verifier gives it the full score."""
        if Capability.ORACLE not in self.capabilities:
            self._undeclared(Capability.ORACLE)
        asked = self._asked()
        reference = asked.reference
        if self._over or reference is None or asked.score(answer_in(reference)) < FULL:
            return []
        return [Action(reference or EMPTY)]

    def sample_action(self, dice: random.Random) -> Action:
        """A common answer, or a word or number of the question."""
        words = re.findall(r"[\w.+-]+", self._asked().question)
        return Action(dice.choice([*GUESSES, *words]))

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _tries(self) -> int:
        return TRIES if self._said.feedback else 1

    @property
    def _solved(self) -> bool:
        return self._last >= FULL

    @property
    def _over(self) -> bool:
        return self._solved or len(self._answers) >= self._tries

    def _made(self, seed: int) -> Puzzle:
        """The puzzle of a seed; the present one is not made again."""
        held = self._puzzle
        return held if held is not None and held.seed == seed else puzzle(self._said, seed)

    def _begin(self, asked: Puzzle) -> Puzzle:
        self._puzzle = asked
        self._answers, self._best, self._last = [], 0.0, 0.0
        return asked

    def _try(self, asked: Puzzle, answer: str) -> None:
        self._answers.append(answer)
        self._last = asked.score(answer)
        self._best = max(self._best, self._last)

    def _judged(self) -> Transition:
        return Transition(
            Observation(self._told()),
            reward=self._last if self._over else 0.0,
            terminated=self._over,
            success=self._solved,
        )

    def _told(self) -> str:
        if self._solved:
            return "Right."
        score = math.floor(100 * self._last) / 100  # down: only what is right has 1
        partial = f" Its score is {score} of 1." if score else ""
        left = self._tries - len(self._answers)
        more = f" Try again; tries left: {left}." if left else ""
        return f"That is wrong.{partial}{more}"

    def _asked(self) -> Puzzle:
        if self._puzzle is None:
            raise InputError("This world has no puzzle yet; call reset with a task first.")
        return self._puzzle


def answer_in(text: str) -> str:
    """What is between the last answer tags, by the package's own rule; else the whole text."""
    tagged = extract_answer(text)
    return text.strip() if tagged is None else str(tagged)


def _digest(asked: Puzzle) -> str:
    whole = json.dumps((asked.question, asked.reference))
    return hashlib.blake2b(whole.encode(), digest_size=12).hexdigest()
