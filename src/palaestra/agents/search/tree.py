"""A tree of tried states, and the two deeds by which it grows: propose, and attempt.

The model proposes replies in a state, several times at a temperature; equal actions are one
proposal, the most frequent first. Attempting one acts in the trial and scores the state that it
leads to. Everything a search spends goes through these two: model calls are in the message
graph, attempts in `Usage.tried`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from palaestra.core.environment import Signals, Transition
from palaestra.core.errors import ContextTooLong
from palaestra.core.message import Message, assistant, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.core.trial import Point, Trial


@dataclass(frozen=True, slots=True)
class Proposal:
    """A reply that the model gave, and how often it meant the same action."""

    reply: Generation
    times: int


@dataclass(eq=False, slots=True)
class Node:
    """A state that was tried, and how it was reached."""

    messages: list[Message]  # the conversation up to what is seen in this state
    signals: Signals
    parent: Node | None = None
    reply: Generation | None = None  # what was said in the parent's state
    transition: Transition | None = None  # what that led to; None: it was not tried
    point: Point | None = None  # None: nothing more can be tried from here
    gained: float = 0.0  # the environment's rewards since the root
    depth: int = 0
    score: float = 0.0  # see `scorers`
    closed: bool = False  # an end, an action not understood, or a state that the tree has already
    children: list[Node] = field(default_factory=list)
    visits: int = 0  # of a Monte-Carlo search …
    worth: float = 0.0  # … and the sum of what they found

    @property
    def solved(self) -> bool:
        return self.transition is not None and self.transition.success

    @property
    def way(self) -> list[Node]:
        """The nodes from below the root to this one."""
        found: list[Node] = []
        node = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]


Scorer = Callable[[Session, Trial, Node], Awaitable[float]]
"""The value of the state in which the trial stands: 1 is solved, -1 is lost."""


class Tree:
    """What a trial has found so far."""

    def __init__(
        self, session: Session, trial: Trial, root: Node, scorer: Scorer, temperature: float
    ) -> None:
        self.session, self.trial, self.root = session, trial, root
        self.nodes: list[Node] = []  # all but the root, in the order in which they were tried
        self._scorer, self._temperature = scorer, temperature
        self._known = {root.signals.state_key}

    def holds_solution(self) -> bool:
        return any(node.solved for node in self.nodes)

    @property
    def best(self) -> Node | None:
        """The highest score; of equals, what is open, then what is near, then the first."""
        return max(self.nodes, key=rank, default=None)

    async def sample(self, node: Node, samples: int) -> list[Generation]:
        """Replies in a state, all at once; none where the conversation has grown too long.

        Raises:
            ContextTooLong: of the root, where the episode itself cannot go on.
        """
        if node.point is None or self.session.tries_left == 0:
            return []
        await self.trial.back(node.point)
        sampling = replace(self.session.sampling, temperature=self._temperature)
        try:
            return await self.session.generate(node.messages, sampling=sampling, n=samples)
        except ContextTooLong:
            if node is self.root:
                raise
            return []

    async def propose(self, node: Node, samples: int) -> list[Proposal]:
        """What the model would do in a state, of as many samples; raises like `sample`."""
        replies: dict[str, list[Generation]] = {}
        for reply in await self.sample(node, samples):
            replies.setdefault(reply.text.strip(), []).append(reply)
        found = [Proposal(of[0], len(of)) for of in replies.values()]
        return sorted(found, key=lambda proposal: -proposal.times)

    async def attempt(self, node: Node, reply: Generation, *, scored: bool = True) -> Node | None:
        """The state that a reply leads to; None where nothing more can be tried."""
        if node.point is None:
            return None
        await self.trial.back(node.point)
        if self.session.tries_left == 0:
            return None
        transition = await self.trial.act(reply.text.strip())
        signals = self.trial.signals
        over = self.trial.over
        child = Node(
            messages=[*node.messages, assistant(reply.text), user(transition.observation.text)],
            signals=signals,
            parent=node,
            reply=reply,
            transition=transition,
            point=None if over else await self.trial.save(),
            gained=node.gained + transition.reward,
            depth=node.depth + 1,
        )
        seen = signals.state_key is not None and signals.state_key in self._known
        child.closed = over or seen or not transition.valid
        self._known.add(signals.state_key)
        if scored:
            child.score = await self._scorer(self.session, self.trial, child)
        self.nodes.append(child)
        node.children.append(child)
        return child

    async def grow(self, node: Node, samples: int) -> list[Node]:
        """The states that the model's proposals lead to, the most frequent first."""
        children = [await self.attempt(node, p.reply) for p in await self.propose(node, samples)]
        return [child for child in children if child is not None]

    async def judge(self, node: Node) -> None:
        """Score a state that was attempted without; the trial must still stand in it."""
        node.score = await self._scorer(self.session, self.trial, node)


def rank(node: Node) -> tuple[float, bool, int]:
    """The higher, the better: score, then whether it is open or solved, then nearness."""
    return node.score, node.solved or not node.closed, -node.depth
