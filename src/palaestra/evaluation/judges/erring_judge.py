"""A judge with a stated error: the recorded outcome, wrong with a probability.

    erring:0.2       each episode's outcome, in a fifth of the episodes the opposite

It reads what no other judge may read, so it measures nothing; it is the control that shows how much
error of an evaluator a method bears (Zhou et al. 2024, PAE). Which verdicts are wrong depends on
the episode's key and its task alone.
"""

from __future__ import annotations

from palaestra.core.episode import derive_seed
from palaestra.core.errors import InputError
from palaestra.evaluation.judges.case import Case
from palaestra.evaluation.judges.verdict import Judge, Verdict

_PARTS = 1 << 30  # of the unit interval


class ErringJudge(Judge):
    """A judge that repeats the true outcome, but for a share of errors in both directions."""

    def __init__(self, error: str) -> None:
        """Read the probability of an error.

        Raises:
            InputError: it is no number in [0, 1].
        """
        self.name = f"erring:{error}"
        try:
            self._error = float(error)
        except ValueError:
            self._error = -1.0
        if not 0 <= self._error <= 1:
            raise InputError(
                f"'{error}' in '{self.name}' is no probability; write a number from 0 to 1, such "
                "as erring:0.2."
            )

    @property
    def rule(self) -> str:
        return self.name

    async def judge(self, case: Case) -> Verdict:
        """Return the outcome or its opposite as 0 or 1; no verdict for a fault."""
        episode = case.episode
        if not episode.outcome.scored:
            return self.verdict(None, "the episode has no outcome")
        sample = derive_seed("erring", episode.key, episode.task.id, episode.task.seed) % _PARTS
        wrong = sample < self._error * _PARTS
        value = float(episode.outcome.solved != wrong)
        return self.verdict(value, "the opposite of the outcome" if wrong else "the outcome")
