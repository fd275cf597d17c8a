"""The message graph: every model call of an episode, token for token.

Each call is a node. A call whose prompt extends an earlier call's conversation
continues that branch and stores only what is new (its *delta*); any other call,
and one that offers other tools, starts a new root. Each sampled token is therefore in
exactly one node. Summaries, sub-agents, context edits and tree search are all
ordinary branches.

Conversations are chains (`chain.py`), so that long ones are not copied for each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import NamedTuple

from palaestra.core.chain import Chain
from palaestra.core.message import ImageSpan, Message
from palaestra.core.model import Finish, without_adapter
from palaestra.core.quick_init import quick_init
from palaestra.core.tool import Tool


@quick_init
@dataclass(frozen=True, slots=True)
class Call:
    """One model call; a node of the graph."""

    index: int
    parent: int | None  # the call whose conversation this one continues
    role: str  # "agent", "planner", "user", "judge" …
    messages: tuple[Message, ...]  # the messages of the prompt after the parent's reply
    prompt: tuple[int, ...]  # the tokens of `messages`; empty for models without a renderer
    reply: Message
    completion: tuple[int, ...]  # sampled tokens, the end token included, and forced ones
    logprobs: tuple[float, ...]  # one per completion token, from the sampler
    finish: Finish
    policy: str
    version: int
    computed_tokens: int = 0
    seconds: float = 0.0
    versions: tuple[int, ...] = ()  # of each token; empty where all are of `version`
    sampled_tokens: int = 0  # the count from a server that does not return `completion`
    entropies: tuple[float, ...] = ()  # of each token's distribution, in nats; empty: unknown
    tools: tuple[Tool, ...] = ()  # the tools that the model may call; the same along a branch
    forced: tuple[int, ...] = ()  # positions in `completion` of tokens that were not sampled
    images: tuple[ImageSpan, ...] = ()  # of a model that sees them: their places in `prompt`
    answer_logprobs: tuple[float, ...] = ()
    """Log-probabilities of the known right reply in place of this one: a probe, never trained."""
    shared_by: int | None = None
    """The member of the group whose rollout sampled the reply, if this one branched off after it;
    None: this one did."""

    @property
    def sampled(self) -> int:
        """The number of sampled tokens, forced ones included, as far as it is known."""
        return len(self.completion) or self.sampled_tokens

    @property
    def token_versions(self) -> tuple[int, ...]:
        """The version of the weights that sampled each token."""
        return self.versions or (self.version,) * len(self.completion)


_VALUES = attrgetter(*(one.name for one in fields(Call)))


def renumbered(call: Call, index: int, parent: int | None) -> Call:
    """Return a call at another position; `dataclasses.replace` takes thrice as long."""
    _, _, *rest = _VALUES(call)
    return Call(index, parent, *rest)


class Place(NamedTuple):
    """The position of a prompt in the graph."""

    parent: int | None  # the call that it continues
    known: int  # how many of its messages belong to that call's conversation
    prompt: Chain[Message]  # all its messages


class MessageGraph:
    """The calls of one episode, in the order in which they were made.

    Conversations are followed once they are asked for: nobody asks the graph of a whole game, whose
    players have graphs of their own.
    """

    def __init__(self, calls: Sequence[Call] = ()) -> None:
        self.calls: list[Call] = []
        self._conversations: list[Chain[Message]] = []  # up to and including each call's reply
        self._tokens: list[Chain[int]] = []  # up to and including each call's completion
        self._latest: dict[_Speaker, int] = {}  # the latest call of each speaker
        self._prefixes = _Prefixes()
        for call in calls:
            self.add(call)

    def add(self, call: Call, prompt: Chain[Message] | None = None) -> None:
        """Add the next call; `prompt` is its whole prompt, if `place` has returned it."""
        if call.index != len(self.calls):
            raise ValueError(f"call {call.index} added at position {len(self.calls)}")
        if prompt is not None:
            self._follow_all()
        self.calls.append(call)
        if prompt is not None:
            self._follow(call, prompt)

    def _follow_all(self) -> None:
        """Follow the conversations of all calls."""
        for call in self.calls[len(self._conversations) :]:
            before = Chain[Message]() if call.parent is None else self._conversations[call.parent]
            self._follow(call, before.extended(call.messages))

    def _follow(self, call: Call, prompt: Chain[Message]) -> None:
        parent = call.parent
        tokens: Chain[int] = Chain() if parent is None else self._tokens[parent]
        self._conversations.append(prompt.extended((call.reply,)))
        if call.prompt or call.completion:
            tokens = tokens.extended((*call.prompt, *call.completion))
        self._tokens.append(tokens)
        self._latest[_speaker(call)] = call.index

    def place(
        self, messages: Sequence[Message], policy: str, role: str, tools: tuple[Tool, ...] = ()
    ) -> Place:
        """Return the position of a prompt for that policy, role and set of tools.

        It continues their latest call if it strictly extends that call's conversation: the
        usual case, in which nothing is copied. Otherwise it continues the call with the longest
        conversation that it strictly extends; among several, the latest.
        """
        self._follow_all()
        speaker = without_adapter(policy), role, tools
        latest = self._latest.get(speaker)
        place = None if latest is None else self._after(latest, messages)
        if place is None and latest is not None:
            self._prefixes.learn(self.calls)
            longest = self._prefixes.longest(messages, speaker)
            place = None if longest is None else self._after(longest, messages)
        return place or Place(None, 0, Chain.of(messages))

    def _after(self, parent: int, messages: Sequence[Message]) -> Place | None:
        conversation = self._conversations[parent]
        prompt = conversation.continued(messages)
        return None if prompt is None else Place(parent, len(conversation), prompt)

    def conversation(self, index: int) -> Chain[Message]:
        """Return all messages up to and including the reply of call `index`."""
        if index >= len(self._conversations):
            self._follow_all()
        return self._conversations[index]

    def tokens(self, index: int) -> list[int]:
        """Return all tokens up to and including the completion of call `index`."""
        if index >= len(self._conversations):
            self._follow_all()
        return self._tokens[index][:]

    def images(self, index: int) -> list[ImageSpan]:
        """Return the places of images in `tokens`."""
        found: list[ImageSpan] = []
        at = 0
        for call in self.path(index):
            found += [span.moved(at) for span in call.images]
            at += len(call.prompt) + len(call.completion)
        return found

    def path(self, index: int) -> list[Call]:
        """Return the calls from the root to call `index`."""
        path = [self.calls[index]]
        while path[-1].parent is not None:
            path.append(self.calls[path[-1].parent])
        return path[::-1]

    def leaves(self) -> list[int]:
        parents = {call.parent for call in self.calls}
        return [call.index for call in self.calls if call.index not in parents]

    def branches(self) -> Iterator[list[Call]]:
        """Yield the root-to-leaf paths: the training rows of the episode."""
        for leaf in self.leaves():
            yield self.path(leaf)


_Speaker = tuple[str, str, tuple[Tool, ...]]
"""Policy, role and available tools: a call continues only calls of the same speaker.

Adapters of one policy that are chosen reply by reply continue each other's conversation."""


def _speaker(call: Call) -> _Speaker:
    return without_adapter(call.policy), call.role, call.tools


class _Prefixes:
    """A prefix tree of conversations, with a message on each edge.

    It is built at the first lookup, which agents that only append never cause.
    """

    def __init__(self) -> None:
        self._edges: dict[tuple[int, Message], int] = {}  # node and message to the next node
        self._ends: dict[tuple[int, _Speaker], int] = {}  # node and speaker to the latest call
        self._nodes: list[int] = []  # where the conversation of each call ends

    def learn(self, calls: Sequence[Call]) -> None:
        """Add those of all `calls` that are new."""
        for call in calls[len(self._nodes) :]:
            node = 0 if call.parent is None else self._nodes[call.parent]
            for message in (*call.messages, call.reply):
                node = self._edges.setdefault((node, message), len(self._edges) + 1)
            self._ends[node, _speaker(call)] = call.index
            self._nodes.append(node)

    def longest(self, messages: Sequence[Message], speaker: _Speaker) -> int | None:
        """Return the call with the longest conversation that `messages` strictly extends."""
        node: int | None = 0
        found: int | None = None
        for message in messages[:-1]:
            node = self._edges.get((node or 0, message))
            if node is None:
                break
            found = self._ends.get((node, speaker), found)
        return found
