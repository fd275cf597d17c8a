"""Recall: the situations of the past that are most like the present one are told again.

Source: Park et al. 2023 (retrieval from a stream of observations); Zhao et al. 2024 (ExpeL, cases
of earlier episodes). The last exchanges are told as they were; of what lies further back, the `k`
situations whose observation fits the present one best: by its words (BM25), or by its meaning. With
`across`, also the `k` earlier episodes that began most like this one: read once, at the start (see
`shelf`).
"""

from __future__ import annotations

from pydantic import NonNegativeInt

from palaestra.agents.history import CUT, History
from palaestra.agents.memory.agent import RememberingAgent
from palaestra.agents.memory.memory import Memory
from palaestra.agents.memory.retrieval import By, Retrieval, retrieval
from palaestra.agents.memory.shelf import PastEpisode, Shelf
from palaestra.agents.react import action_of
from palaestra.core.session import Session

HEAD = "Before, in a like situation:"
CASES = "\n\nEarlier episodes like this one:\n"
LONGEST = 20  # actions of an earlier episode that are told


class Recall(History):
    """The last exchanges, and before them the situations that fit."""

    def __init__(self, told: str, first: str, last: int, k: int, best: Retrieval) -> None:
        super().__init__(told, first, last)
        self._k, self._best = k, best

    @property
    def opening(self) -> str:
        found = self._best(self.seen[-1], self.seen[: self.cut], self._k)
        if not found:
            return super().opening
        cases = "\n".join(
            f"{self.seen[i]} > {action_of(self.replies[i])} > {self.seen[i + 1]}"
            for i in sorted(found)
        )
        return f"{self.seen[0]}{CUT}{HEAD}\n{cases}{CUT}{self.seen[self.cut]}"


class Kept(Recall):
    """The same, kept on a shelf when the episode has ended."""

    def __init__(
        self, told: str, first: str, last: int, k: int, best: Retrieval, shelf: Shelf, place: str
    ) -> None:
        super().__init__(told, first, last, k, best)
        self._shelf, self._place = shelf, place

    def keep(self, session: Session) -> None:
        self._shelf.keep(session, self._place)


class RecallAgent(RememberingAgent):
    """A chat that is told the most similar moments of its past (BM25, or embeddings)."""

    name = "recall"

    def __init__(
        self,
        *,
        k: NonNegativeInt = 2,
        history: NonNegativeInt = 2,
        by: By = "words",
        across: bool = False,
        shelf: str | None = None,
        thoughts: bool = False,
    ) -> None:
        """Told are the last `history` exchanges, and `k` moments of before that are found `by` it.

        With `across` also `k` earlier episodes, kept in the file `shelf` where one is named.

        Raises:
            MissingPackage: the embeddings asked for are not installed.
        """
        if shelf is not None and not across:
            raise ValueError("shelf is only read with across=true")
        self.k, self.history, self.across, self.thoughts = k, history, across, thoughts
        self.best, self.shelf = retrieval(by), Shelf(shelf)

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        told, first = self.told(session), session.observation.text
        if not self.across:
            return Recall(told, first, self.history, self.k, self.best)
        place = self.shelf.place(session)
        if session.begun is not None:  # as it was told then
            told = session.begun.messages[0].content
        elif known := self.shelf.read(place):
            found = self.best(first, [past.first for past in known], self.k)
            told += "".join(CASES + _case(known[i]) for i in found)
        return Kept(told, first, self.history, self.k, self.best, self.shelf, place)


def _case(past: PastEpisode) -> str:
    done = ", ".join(past.actions[:LONGEST])
    return f"{past.first}\nYou did: {done}\n{'Solved.' if past.solved else 'Not solved.'}"
