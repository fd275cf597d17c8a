"""The message graph: every model call of an episode, token for token.

Each call is a node. A call whose prompt extends an earlier call's conversation
continues that branch and stores only what is new (its *delta*); any other call
starts a new root. A sampled token therefore stands in exactly one node, and
summaries, sub-agents, context edits and tree search are all ordinary branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from palaestra.core.chain import Chain
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
    versions: tuple[int, ...] = ()  # of each token; empty where all are of `version`
    sampled_tokens: int = 0  # as a server tells that does not tell `completion`
    entropies: tuple[float, ...] = ()  # of what each token was drawn from, in nats; empty: unknown

    @property
    def sampled(self) -> int:
        """How many tokens were sampled, as far as it is known."""
        return len(self.completion) or self.sampled_tokens

    @property
    def token_versions(self) -> tuple[int, ...]:
        """Which weights sampled each token."""
        return self.versions or (self.version,) * len(self.completion)


class Place(NamedTuple):
    """Where a prompt belongs in the graph."""

    parent: int | None  # the call that it continues
    known: int  # how many of its messages are that call's conversation
    prompt: Chain[Message]  # all its messages


class MessageGraph:
    """The calls of one episode, in the order in which they were made."""

    def __init__(self, calls: Sequence[Call] = ()) -> None:
        self.calls: list[Call] = []
        self._conversations: list[Chain[Message]] = []  # up to and with the reply of each call
        self._tokens: list[Chain[int]] = []  # likewise
        self._latest: dict[tuple[str, str], int] = {}  # policy and role to their latest call
        self._prefixes = _Prefixes()
        for call in calls:
            self.add(call)

    def add(self, call: Call, prompt: Chain[Message] | None = None) -> None:
        """Add the next call; `prompt` is its whole prompt where `place` has given it."""
        if call.index != len(self.calls):
            raise ValueError(f"call {call.index} added at position {len(self.calls)}")
        conversation: Chain[Message] = Chain()
        tokens: Chain[int] = Chain()
        if call.parent is not None:
            conversation, tokens = self._conversations[call.parent], self._tokens[call.parent]
        if prompt is None:
            prompt = conversation.extended(call.messages)
        self.calls.append(call)
        self._conversations.append(prompt.extended((call.reply,)))
        if call.prompt or call.completion:
            tokens = tokens.extended((*call.prompt, *call.completion))
        self._tokens.append(tokens)
        self._latest[call.policy, call.role] = call.index

    def place(self, messages: Sequence[Message], policy: str, role: str) -> Place:
        """Where a prompt for that policy and role belongs.

        It continues their latest call if it strictly extends that one's conversation: the
        usual case, in which nothing is copied. Else it continues the call with the longest
        conversation that it strictly extends; of several, the latest.
        """
        latest = self._latest.get((policy, role))
        place = None if latest is None else self._behind(latest, messages)
        if place is None and latest is not None:
            self._prefixes.learn(self.calls)
            longest = self._prefixes.longest(messages, policy, role)
            place = None if longest is None else self._behind(longest, messages)
        return place or Place(None, 0, Chain(messages))

    def _behind(self, parent: int, messages: Sequence[Message]) -> Place | None:
        conversation = self._conversations[parent]
        prompt = conversation.continued(messages)
        return None if prompt is None else Place(parent, len(conversation), prompt)

    def conversation(self, index: int) -> Chain[Message]:
        """All messages up to and with the reply of call `index`."""
        return self._conversations[index]

    def tokens(self, index: int) -> list[int]:
        """All tokens up to and with the completion of call `index`."""
        return self._tokens[index][:]

    def path(self, index: int) -> list[Call]:
        """The calls from the root to call `index`."""
        path = [self.calls[index]]
        while path[-1].parent is not None:
            path.append(self.calls[path[-1].parent])
        return path[::-1]

    def leaves(self) -> list[int]:
        parents = {call.parent for call in self.calls}
        return [call.index for call in self.calls if call.index not in parents]

    def branches(self) -> Iterator[list[Call]]:
        """Root-to-leaf paths: the training rows of the episode."""
        for leaf in self.leaves():
            yield self.path(leaf)


class _Prefixes:
    """Which conversations a prompt extends: a tree with a message on each edge.

    It is filled when it is first asked, which agents that only append never cause.
    """

    def __init__(self) -> None:
        self._edges: dict[tuple[int, Message], int] = {}  # node and message to the next node
        self._ends: dict[tuple[int, str, str], int] = {}  # node, policy, role to the latest call
        self._nodes: list[int] = []  # where the conversation of each call ends

    def learn(self, calls: Sequence[Call]) -> None:
        """Take up those of all `calls` that are new."""
        for call in calls[len(self._nodes) :]:
            node = 0 if call.parent is None else self._nodes[call.parent]
            for message in (*call.messages, call.reply):
                node = self._edges.setdefault((node, message), len(self._edges) + 1)
            self._ends[node, call.policy, call.role] = call.index
            self._nodes.append(node)

    def longest(self, messages: Sequence[Message], policy: str, role: str) -> int | None:
        """The call with the longest conversation that `messages` strictly extends."""
        node: int | None = 0
        found: int | None = None
        for message in messages[:-1]:
            node = self._edges.get((node or 0, message))
            if node is None:
                break
            found = self._ends.get((node, policy, role), found)
        return found
