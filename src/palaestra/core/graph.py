"""The message graph: every model call of an episode, token for token.

Each call is a node. A call whose prompt extends an earlier call's conversation
continues that branch and stores only what is new (its *delta*); any other call
starts a new root. A sampled token therefore stands in exactly one node, and
summaries, sub-agents, context edits and tree search are all ordinary branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from palaestra.core.message import Message
from palaestra.core.model import Finish


@dataclass(frozen=True, slots=True)
class Call:
    """One model call; a node of the graph."""

    index: int
    parent: int | None  # the call whose conversation this one continues
    role: str  # "agent", "planner", "user", "judge" …
    messages: tuple[Message, ...]  # what is new in the prompt since the parent's reply
    prompt: tuple[int, ...]  # the same as tokens; empty for models without a renderer
    reply: Message
    completion: tuple[int, ...]  # sampled tokens, the end token included
    logprobs: tuple[float, ...]  # one per completion token, from the sampler
    finish: Finish
    policy: str
    version: int
    computed_tokens: int = 0
    seconds: float = 0.0


class MessageGraph:
    """The calls of one episode, in the order in which they were made."""

    def __init__(self, calls: Sequence[Call] = ()) -> None:
        self.calls: list[Call] = []
        self._conversations: list[tuple[Message, ...]] = []
        for call in calls:
            self.add(call)

    def add(self, call: Call) -> None:
        if call.index != len(self.calls):
            raise ValueError(f"call {call.index} added at position {len(self.calls)}")
        before = self.conversation(call.parent) if call.parent is not None else ()
        self.calls.append(call)
        self._conversations.append((*before, *call.messages, call.reply))

    def conversation(self, index: int) -> tuple[Message, ...]:
        """All messages up to and with the reply of call `index`."""
        return self._conversations[index]

    def tokens(self, index: int) -> list[int]:
        """All tokens up to and with the completion of call `index`."""
        parts: list[int] = []
        for call in self.path(index):
            parts.extend(call.prompt)
            parts.extend(call.completion)
        return parts

    def path(self, index: int) -> list[Call]:
        """The calls from the root to call `index`."""
        path = [self.calls[index]]
        while path[-1].parent is not None:
            path.append(self.calls[path[-1].parent])
        return path[::-1]

    def parent_of(self, messages: Sequence[Message], policy: str, role: str) -> int | None:
        """The call with the longest conversation that `messages` strictly extends."""
        best: int | None = None
        longest = 0
        for index in range(len(self.calls) - 1, -1, -1):
            call, conversation = self.calls[index], self._conversations[index]
            length = len(conversation)
            if (
                longest < length < len(messages)
                and call.policy == policy
                and call.role == role
                and conversation == tuple(messages[:length])
            ):
                best, longest = index, length
                if index == len(self.calls) - 1:
                    break  # the usual case: the latest call is continued
        return best

    def leaves(self) -> list[int]:
        parents = {call.parent for call in self.calls}
        return [call.index for call in self.calls if call.index not in parents]

    def branches(self) -> Iterator[list[Call]]:
        """Root-to-leaf paths: the training rows of the episode."""
        for leaf in self.leaves():
            yield self.path(leaf)
