"""The environment of translation: a sentence is translated until its chrF score passes a gate.

`translation/german`: each translation is answered with its chrF score against a reference that
stays hidden. From `GATE` on the task is solved; after `TRIES` translations below it is over.

Sources: Popović 2015 (chrF, as sacrebleu computes it: Post 2018); Li et al. 2025 (TACTIC) for
refinement that a score gates.
"""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics.chrf import CHRF

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.task import Split, Task
from palaestra.core.team_words import ACCEPT, WRONG
from palaestra.environments.base import hashed, refused, without_parameters
from palaestra.environments.shared.known_answer import KnownAnswer

GATE = 70.0  # chrF, from 0 to 100
TRIES = 4
SENTENCES = Path(__file__).with_name("sentences.toml")


class Pair(NamedTuple):
    """A sentence and its reference."""

    source: str
    reference: str


class Translation(
    KnownAnswer,
    id="translation",
    capabilities={"state_key", "snapshot", "progress"},
    free_text=True,
    typical_turns=TRIES,
):
    """One sentence to be translated."""

    instructions = (
        "Translate the sentence into English. Reply with the translation alone. Its chrF score "
        f"against a hidden reference must reach {GATE:g}; you have {TRIES} tries."
    )

    def __init__(self, name: str = "german") -> None:
        super().__init__(name)
        read = tomllib.loads(SENTENCES.read_text(encoding="utf-8"))["sentence"]
        self._pairs = [Pair(one["german"], one["english"]) for one in read]
        self._pair = self._pairs[0]
        self._metric = CHRF()
        self._scores: list[float] = []  # of the translations so far

    @classmethod
    def names(cls) -> list[str]:
        return ["german"]

    def _begin(self, task: Task) -> Observation:
        """Choose a sentence of the task's split.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task)
        pairs = [pair for n, pair in enumerate(self._pairs) if _split(n) is task.split]
        self._pair = random.Random(f"sentence {task.seed}").choice(pairs)
        self._scores = []
        return Observation(self._pair.source)

    def _act(self, action: Action) -> Transition:
        text = " ".join(action.text.split())
        if not text:
            return refused(self.instructions)
        score = self._score(text)
        self._scores.append(score)
        solved = score >= GATE
        self._over = solved or len(self._scores) == TRIES
        verdict = ACCEPT if solved else WRONG
        return Transition(
            Observation(f"gate: {verdict}: chrF {score:.1f} of {GATE:g}"),
            reward=score / 100 if self._over else 0.0,
            terminated=self._over,
            success=solved,
            info={"chrf": round(score, 2)},
        )

    def state_key(self) -> str:
        task = self._current()
        return hashed(task.split, task.seed, self._scores, self._over)

    def progress(self) -> float:
        """Return the best score so far, as a share of the gate; 1 only if it was reached."""
        self._current()
        return min(1.0, max(self._scores, default=0.0) / GATE)

    def answer(self) -> Action:
        """Return the reference."""
        self._current()
        return Action(self._pair.reference)

    def sample_action(self, rng: random.Random) -> Action:
        """Return a translation below the gate: the reference with words lost and in disorder."""
        self._current()
        words = self._pair.reference.split()
        while True:
            kept = rng.sample(words, rng.randint(1, len(words)))
            if self._score(" ".join(kept)) < GATE:
                return Action(" ".join(kept))

    def _score(self, text: str) -> float:
        return float(self._metric.sentence_score(text, [self._pair.reference]).score)


def _split(number: int) -> Split:
    return (Split.TRAIN, Split.TRAIN, Split.VALIDATION, Split.TEST)[number % 4]
