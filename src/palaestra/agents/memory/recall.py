"""Recall: the prompt shows the past situations that are most similar to the current one.

Source: Park et al. 2023 (retrieval from a stream of observations); Zhao et al. 2024 (ExpeL, cases
of earlier episodes). A prompt holds the last exchanges, and from before them the `k` situations
whose observation matches the current one best, by words (BM25) or by meaning. With `across`, it
also holds the `k` earlier episodes with the most similar start, read once at the start (see
`cross_episode.py`).
"""

from __future__ import annotations

from pydantic import NonNegativeInt

from palaestra.agents.history import CUT, History
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.cross_episode import PastEpisode, Shelf
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.agents.memory.retrieval import By, Retrieval, retrieval
from palaestra.agents.react import action_of
from palaestra.core.session import Session

HEAD = "Before, in a like situation:"
CASES = "\n\nEarlier episodes like this one:\n"
LONGEST = 20  # actions of an earlier episode in the prompt


class Recall(History):
    """The last exchanges, and before them the retrieved situations."""

    def __init__(self, instructions: str, first: str, last: int, k: int, best: Retrieval) -> None:
        super().__init__(instructions, first, last)
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


class CrossEpisodeRecall(Recall):
    """A `Recall` that stores the episode on a shelf when it has ended."""

    def __init__(
        self,
        instructions: str,
        first: str,
        last: int,
        k: int,
        best: Retrieval,
        shelf: Shelf,
        place: str,
    ) -> None:
        super().__init__(instructions, first, last, k, best)
        self._shelf, self._place = shelf, place

    def keep(self, session: Session) -> None:
        self._shelf.keep(session, self._place)


class RecallAgent(RememberingAgent):
    """A chat that shows the most similar situations of its past (BM25, or embeddings)."""

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
        """Show the last `history` exchanges, and `k` earlier situations retrieved by `by`.

        With `across`, also show `k` earlier episodes, stored in the file `shelf` if given.

        Raises:
            MissingPackage: the embeddings asked for are not installed.
        """
        if shelf is not None and not across:
            raise ValueError("shelf is only read with across=true")
        self.k, self.history, self.across, self.thoughts = k, history, across, thoughts
        self.best, self.shelf = retrieval(by), Shelf(shelf)

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        instructions, first = self.instructions(session), session.observation.text
        if not self.across:
            return Recall(instructions, first, self.history, self.k, self.best)
        place = self.shelf.place(session)
        if session.first_recorded_call is not None:  # the same prompt as then
            instructions = session.first_recorded_call.messages[0].text
        elif known := self.shelf.read(place):
            found = self.best(first, [past.first for past in known], self.k)
            instructions += "".join(CASES + _case(known[i]) for i in found)
        return CrossEpisodeRecall(
            instructions, first, self.history, self.k, self.best, self.shelf, place
        )


def _case(past: PastEpisode) -> str:
    done = ", ".join(past.actions[:LONGEST])
    return f"{past.first}\nYou did: {done}\n{'Solved.' if past.solved else 'Not solved.'}"
