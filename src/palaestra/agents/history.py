"""Conversation history: all exchanges, the last few, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.memory.base import Memory
from palaestra.core.chain import Chain
from palaestra.core.environment import Observation
from palaestra.core.message import Image, Message, assistant, system, user

Keep = Annotated[int, Field(ge=0)] | None
"""The number of exchanges that a prompt keeps; None: all."""

CUT = "\n…\n"
BEFORE = 2  # messages before the first reply: the instructions and the first observation


class History(Memory):
    """A conversation that keeps all exchanges or only the last ones.

    With `last=None` it is append-only, so each prompt extends the one before. With a number, a
    prompt holds the instructions and the first observation (they state the task), then the last
    `last` exchanges. Each prompt that drops an exchange begins a new branch of the message graph.
    Where every observation states the task, `keep_first=False` drops the first one, too.
    """

    def __init__(
        self, instructions: str, first: str, last: Keep = None, *, keep_first: bool = True
    ) -> None:
        self.instructions, self.last, self.keep_first = instructions, last, keep_first
        self.replies: list[str] = []
        self._said: list[Message] = []  # the replies, with their reasoning if it was given
        self.seen = [first]  # one more than the replies
        self.images_at: dict[int, tuple[Image, ...]] = {}  # by index in `seen`
        self._exchanges: list[Message] = []  # two for each reply whose messages were asked for
        self._head: tuple[object, ...] = ()  # what the first two messages of the prompt are made of
        self._prompt: Chain[Message] = Chain()

    def add(self, reply: str | Message, observation: str) -> None:
        """Append an exchange; a reply given as a message keeps its reasoning."""
        said = assistant(reply) if isinstance(reply, str) else reply
        self._said.append(said)
        self.replies.append(said.text)
        self.seen.append(observation)

    def add_images(self, observation: Observation) -> None:
        """Include the images of the latest observation."""
        if observation.images:
            self.images_at[len(self.seen) - 1] = observation.images

    @property
    def cut(self) -> int:
        """Return how many exchanges are dropped."""
        return 0 if self.last is None else max(0, len(self.replies) - self.last)

    @property
    def opening(self) -> str:
        """Return the first user message, before the first reply."""
        first, cut = self.seen[0], self.cut
        if not self.keep_first:
            return self.seen[cut]
        return f"{first}{CUT}{self.seen[cut]}" if cut else first

    def shown(self, index: int) -> str:
        """Return how the observation that follows reply `index` is shown."""
        return self.seen[index + 1]

    @property
    def messages(self) -> Sequence[Message]:
        """Return the prompt, which ends with the current observation."""
        cut = self.cut
        images = self.images_at.get(cut, ())
        if cut and self.keep_first:
            images = self.images_at.get(0, ()) + images
        for index in range(len(self._exchanges) // 2, len(self.replies)):
            seen = user(self.shown(index), *self.images_at.get(index + 1, ()))
            self._exchanges += [self._said[index], seen]
        head = (self.instructions, opening := self.opening, images, cut)
        if head != self._head:
            self._head = head
            self._prompt = Chain((system(self.instructions), user(opening, *images)))
        known = 2 * cut + len(self._prompt) - BEFORE
        self._prompt = self._prompt.extended(self._exchanges[known:])
        return self._prompt
