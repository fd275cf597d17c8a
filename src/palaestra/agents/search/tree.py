"""A tree of tried states, which grows by two operations: propose and attempt.

The model proposes replies in a state, several times at a temperature. Equal actions are one
proposal, the most frequent first. Attempting a proposal acts in the trial and scores the next
state. All costs of a search pass through these two: model calls are in the message graph, attempts
in `Usage.tried`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from palaestra.core.environment import Signals, Transition
from palaestra.core.errors import ContextTooLong
from palaestra.core.message import Message, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.core.trial import Point, Trial


@dataclass(frozen=True, slots=True)
class Proposal:
    """A reply of the model, and how often the same action was sampled."""

    reply: Generation
    times: int


@dataclass(eq=False, slots=True)
class Node:
    """A tried state, and how it was reached."""

    messages: list[Message]  # the conversation up to this state's observation
    signals: Signals
    parent: Node | None = None
    reply: Generation | None = None  # in the parent's state
    transition: Transition | None = None  # of that reply; None: it was not tried
    point: Point | None = None  # None: it cannot be expanded
    gained: float = 0.0  # the environment's rewards since the root
    depth: int = 0
    score: float = 0.0  # see `scorers`
    closed: bool = False  # ended, an invalid action, or a duplicate state
    children: list[Node] = field(default_factory=list)
    visits: int = 0  # of a Monte-Carlo search …
    worth: float = 0.0  # … and the sum of their values

    @property
    def solved(self) -> bool:
        return self.transition is not None and self.transition.success

    @property
    def path(self) -> list[Node]:
        """Return the nodes from below the root to this one."""
        found: list[Node] = []
        node = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]


Scorer = Callable[[Session, Trial, Node], Awaitable[float]]
"""A function that values the current state of the trial: 1 is solved, -1 is lost."""


class Tree:
    """The states that a trial has visited so far."""

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
        """Return the best state by `rank`; of equals, the first."""
        return max(self.nodes, key=rank, default=None)

    async def sample(self, node: Node, samples: int) -> list[Generation]:
        """Sample replies in a state in one batch; none if the conversation is too long.

        Raises:
            ContextTooLong: the root's conversation is too long, so the episode cannot continue.
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
        """Sample replies and group them by action; raises like `sample`."""
        replies: dict[str, list[Generation]] = {}
        for reply in await self.sample(node, samples):
            replies.setdefault(reply.text.strip(), []).append(reply)
        found = [Proposal(of[0], len(of)) for of in replies.values()]
        return sorted(found, key=lambda proposal: -proposal.times)

    async def attempt(self, node: Node, reply: Generation, *, scored: bool = True) -> Node | None:
        """Take the action of a reply and return the next state; None if no try is left."""
        if node.point is None:
            return None
        await self.trial.back(node.point)
        if self.session.tries_left == 0:
            return None
        transition = await self.trial.act(reply.text.strip())
        signals = self.trial.signals
        over = self.trial.over
        child = Node(
            messages=[*node.messages, reply.message, user(transition.observation.text)],
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
        """Propose and attempt in a state; return the children, the most frequent first."""
        children = [await self.attempt(node, p.reply) for p in await self.propose(node, samples)]
        return [child for child in children if child is not None]

    async def judge(self, node: Node) -> None:
        """Score a state attempted with `scored=False`; the trial must be in it."""
        node.score = await self._scorer(self.session, self.trial, node)


def rank(node: Node) -> tuple[float, bool, int]:
    """Return a sort key, higher is better: score, then open or solved, then low depth."""
    return node.score, node.solved or not node.closed, -node.depth


def back_up_best(node: Node) -> None:
    """Count a visit on the way to the root; a state is worth its best descendant.

    A state that was known before, or cannot be expanded, adds no value.
    """
    node.worth = 0.0 if node.closed else node.score
    above: Node | None = node
    while above is not None:
        above.visits, above.worth = above.visits + 1, max(above.worth, node.worth)
        above = above.parent
