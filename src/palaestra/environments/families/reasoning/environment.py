"""Reasoning Gym: a hundred kinds of procedurally generated puzzles, scored by verifiers.

Ids: `reasoning/chain_sum` (a data set of the package, with its default settings),
`reasoning/chain_sum@2` (level 2 of the package's curriculum, counted from 0),
`reasoning/chain_sum+feedback` and `reasoning/chain_sum@2+feedback` (several tries).
Source: Stojanovski et al. 2025 (Reasoning Gym).

A task's puzzle is item 0 of the package's data set, created with the task's seed and size 1, or,
where the size changes the item (acre), with the default size. The answer is the text between the
last `<answer>` tags, as the package extracts it, or else the whole reply, stripped. The package's
verifier scores it; the score is the reward, once, at the end. Success is the full score.

Ours: with feedback there are four tries. After a wrong answer the agent reads that it is wrong, and
the score if it is partial, but never the answer. The last answer's score is the reward. An
exception of a verifier counts as 0. Answers that a verifier would execute, or that exploit it or
exhaust the memory, count as unreadable (`guard.py`).

Excluded: composite, game_of_life_halting (reasons in `EXCLUDED`). No oracle: boxnet and rush_hour,
which have no reference answers. Of propositional_logic's own answers, 7 in 1,000 do not get the
full score (all are "P"): there the oracle returns no plan. Five data sets (isomorphic_strings,
knight_swap, polynomial_multiplication, ransom_note, word_ladder) choose from Python's sets, so
their puzzles also depend on PYTHONHASHSEED, which is 0 in palaestra's workers; a snapshot of
another puzzle is refused.
"""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from importlib.metadata import version

from reasoning_gym.utils import extract_answer

from palaestra.core.environment import Action, Capability, Observation, Spec, Transition, declared
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import Sampling
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, hashed, refused, without_parameters
from palaestra.environments.families.reasoning.sets import (
    FEEDBACK,
    UNANSWERED,
    Puzzle,
    parse_name,
    puzzle,
    titles,
)

TRIES = 4  # with feedback
FULL = 1 - 1e-9
EMPTY = "<answer></answer>"  # an empty answer, which ab accepts; an empty reply would be invalid
GUESSES = ("yes", "no", "True", "False", "0", "1", "2", "10")
VERSION = version("reasoning-gym")  # the module's own __version__ lags behind


class ReasoningGym(
    Adapter,
    Sampling,
    id="reasoning",
    capabilities={"state_key", "snapshot", "progress", "oracle", "answer"},
    free_text=True,
):
    """One puzzle with a free-text answer."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._name = parse_name(name)
        self._puzzle: Puzzle | None = None
        self._answers: list[str] = []
        self._best = self._last = 0.0  # scores

    @classmethod
    def names(cls) -> list[str]:
        """List all names without levels; data sets with a curriculum also accept a level."""
        return [title + variant for title in titles() for variant in ("", FEEDBACK)]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Set `typical_turns` to the number of tries, with room for an empty reply."""
        parsed, spec = parse_name(name), declared(cls).named(name)
        unknown = {Capability.ORACLE, Capability.ANSWER} if parsed.title in UNANSWERED else set()
        has = spec.capabilities - unknown
        return replace(spec, capabilities=has, typical_turns=1 + (TRIES if parsed.feedback else 1))

    @property
    def instructions(self) -> str:
        tries = f" You have {TRIES} tries." if self._name.feedback else ""
        return (
            "Answer the question. Reply with the answer only, or reason first and end with "
            f"<answer>the answer</answer>.{tries}"
        )

    def _begin(self, task: Task) -> Observation:
        """Make the puzzle of `task.seed`.

        Raises:
            InputError: the task has parameters; choose a level by the name.
        """
        without_parameters(task, "choose a level by the name, such as 'chain_sum@2'")
        return Observation(self._set_puzzle(self._puzzle_of(task.seed)).question)

    def _act(self, action: Action) -> Transition:
        if not action.text.strip():
            return refused("Say your answer.")
        self._try(self._running(), answer_in(action.text))
        return self._transition()

    def state_key(self) -> str:
        """Return the puzzle, the number of tries and the best score so far."""
        seed = self._running().seed
        return f"{self.spec.name}/{seed}/{len(self._answers)}/{self._best!r}"

    def snapshot(self) -> bytes:
        """Save the seed and the answers, with a digest of the puzzle."""
        body = [_digest(self._running()), self._answers]
        return self._saved(json.dumps(body).encode(), VERSION)

    def restore(self, snapshot: bytes) -> None:
        """Make the puzzle again and replay the answers.

        Raises:
            InputError: the snapshot is of another environment, or this process makes another
                puzzle from the same seed.
        """
        before = self._task, self._over
        digest, answers = json.loads(self._loaded(snapshot, VERSION))
        again = self._puzzle_of(self._current().seed)
        if _digest(again) != digest:
            self._task, self._over = before
            raise InputError(
                f"The puzzle {again.seed} of '{self.spec.name}' is another one in this process; "
                "start Python with the PYTHONHASHSEED with which the snapshot was made."
            )
        self._set_puzzle(again)
        for answer in answers:
            self._try(again, answer)

    def progress(self) -> float:
        """Return the best score so far."""
        self._running()
        return 1.0 if self._solved else self._best

    def oracle(self) -> list[Action]:
        """Return the package's reference answer, if its verifier gives it the full score."""
        if Capability.ORACLE not in self.spec.capabilities:
            self._undeclared(Capability.ORACLE)
        current = self._running()
        reference = current.reference
        if self._over or reference is None or current.score(answer_in(reference)) < FULL:
            return []
        return [Action(reference or EMPTY)]

    def answer(self) -> Action:
        """Return the package's reference answer, whatever its verifier says of it."""
        return Action(self._running().reference or EMPTY)

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a common answer, or a word or number of the question."""
        words = re.findall(r"[\w.+-]+", self._running().question)
        return Action(rng.choice([*GUESSES, *words]))

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _tries(self) -> int:
        return TRIES if self._name.feedback else 1

    @property
    def _solved(self) -> bool:
        return self._last >= FULL

    def _puzzle_of(self, seed: int) -> Puzzle:
        """Make the puzzle of a seed, or return the current one if it has that seed."""
        current = self._puzzle
        if current is not None and current.seed == seed:
            return current
        return puzzle(self._name, seed)

    def _set_puzzle(self, new: Puzzle) -> Puzzle:
        self._puzzle = new
        self._answers, self._best, self._last = [], 0.0, 0.0
        return new

    def _try(self, current: Puzzle, answer: str) -> None:
        self._answers.append(answer)
        self._last = current.score(answer)
        self._best = max(self._best, self._last)

    def _transition(self) -> Transition:
        over = self._solved or len(self._answers) >= self._tries
        return Transition(
            Observation(self._feedback()),
            reward=self._last if over else 0.0,
            terminated=over,
            success=self._solved,
        )

    def _feedback(self) -> str:
        if self._solved:
            return "Right."
        score = math.floor(100 * self._last) / 100  # rounded down: only a right answer shows 1
        partial = f" Its score is {score} of 1." if score else ""
        left = self._tries - len(self._answers)
        more = f" Try again; tries left: {left}." if left else ""
        return f"That is wrong.{partial}{more}"

    def _running(self) -> Puzzle:
        if self._puzzle is None:
            raise InputError(
                f"The environment '{self.spec.id}' has no puzzle yet; call reset with a task first."
            )
        return self._puzzle


def answer_in(text: str) -> str:
    """Return the text between the last answer tags, by the package's rule; else the whole text."""
    tagged = extract_answer(text)
    return text.strip() if tagged is None else str(tagged)


def _digest(puzzle: Puzzle) -> str:
    return hashed(puzzle.question, puzzle.reference)
