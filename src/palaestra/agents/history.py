"""What an agent still sees of the past: all of it, the last exchanges, or nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaestra.agents.memory.memory import Memory
from palaestra.core.environment import Observation
from palaestra.core.message import Message, assistant, system, user

Keep = Annotated[int, Field(ge=0)] | None
"""How many exchanges are told; None: all of them."""

CUT = "\n…\n"


class History(Memory):
    """A conversation of which only the last exchanges are told.

    `last=None` appends for ever, so each prompt extends the one before. With a number, the
    instructions and the first observation stay (they hold the task), followed by the last `last`
    exchanges; each prompt that leaves one out begins a new branch of the message graph.
    """

    def __init__(self, instructions: str, first: str, last: Keep = None) -> None:
        self.instructions, self.last = instructions, last
        self.replies: list[str] = []
        self.seen = [first]  # one more than the replies
        self.pictures: dict[int, tuple[str, ...]] = {}  # of those in `seen`, by their places
        self._exchanges: list[Message] = []  # made once: equal objects are compared in no time

    def add(self, reply: str, observation: str) -> None:
        """One more exchange."""
        self.replies.append(reply)
        self.seen.append(observation)

    def look(self, observation: Observation) -> None:
        """Tell the pictures of the latest observation, too."""
        if observation.images:
            self.pictures[len(self.seen) - 1] = observation.images

    @property
    def cut(self) -> int:
        """How many exchanges are not told."""
        return 0 if self.last is None else max(0, len(self.replies) - self.last)

    @property
    def opening(self) -> str:
        """What the conversation begins with, before its first reply."""
        first, cut = self.seen[0], self.cut
        return f"{first}{CUT}{self.seen[cut]}" if cut else first

    @property
    def messages(self) -> list[Message]:
        """What to ask the model with; ends with the present observation."""
        cut = self.cut
        shown = self.pictures.get(0, ()) + (self.pictures.get(cut, ()) if cut else ())
        for place in range(len(self._exchanges) // 2, len(self.replies)):
            images = self.pictures.get(place + 1, ())
            said = assistant(self.replies[place])
            self._exchanges += [said, user(self.seen[place + 1], *images)]
        head = [system(self.instructions), user(self.opening, *shown)]
        return head + self._exchanges[2 * cut :]
