"""What an agent still sees of the past: all of it, the last exchanges, or nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaestra.core.message import Message, assistant, system, user

Keep = Annotated[int, Field(ge=0)] | None
"""How many exchanges are told; None: all of them."""

CUT = "\n…\n"


class History:
    """A conversation of which only the last exchanges are told.

    `keep=None` appends for ever, so each prompt extends the one before. With a number, the
    instructions and the first observation stay (they hold the task), followed by the last `keep`
    exchanges; each prompt that leaves one out begins a new branch of the message graph.
    """

    def __init__(self, instructions: str, first: str, keep: Keep) -> None:
        self._instructions, self._keep = system(instructions), keep
        self._replies: list[str] = []
        self._seen = [first]  # one more than the replies

    def add(self, reply: str, observation: str) -> None:
        """One more exchange."""
        self._replies.append(reply)
        self._seen.append(observation)

    @property
    def messages(self) -> list[Message]:
        """What to ask the model with; ends with the present observation."""
        keep, first = self._keep, self._seen[0]
        cut = 0 if keep is None else max(0, len(self._replies) - keep)
        start = f"{first}{CUT}{self._seen[cut]}" if cut else first
        found = [self._instructions, user(start)]
        rest = zip(self._replies[cut:], self._seen[cut + 1 :], strict=True)
        for reply, observation in rest:
            found += [assistant(reply), user(observation)]
        return found
