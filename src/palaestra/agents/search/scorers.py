"""Scorers: what a search takes a tried state to be worth, from -1 (lost) to 1 (solved).

Where the world says how it ended, no scorer is asked. Otherwise a search is as good as its
scorer, and each knows something else:

`reward`  the world's own rewards on the way so far: nothing that an agent would not see.
`progress`  the share of the task that is done, where the world declares it. Some worlds measure
          it by their solution: then it is as much a privilege as the next.
`oracle`  how long the reference solution still is. No real model has that; and where a reference
          does not know that a task is lost, it is worse than what the world pays.
`judge`   what a model says that the state is worth (role "judge"), by Koh et al. 2024.
`learned`  what a model that learned nothing else says (role "scorer"): the value of the state
          (AgentRM, Xia et al. 2025), or of the action that led to it (Zhai et al. 2024).

A scorer of one's own is `module:function`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence

from palaestra.agents.search.tree import Node, Scorer
from palaestra.core.environment import Action
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session
from palaestra.core.trial import Trial

SCORER = "scorer"  # the role of a learned scorer
QUESTION = (
    "You judge how an attempt at a task is going. Reply with one number from 0 to 100: "
    "0 where it cannot succeed any more, 100 where it is as good as solved."
)


async def reward(session: Session, trial: Trial, node: Node) -> float:
    """Rewards since the root, squashed into (-1, 1); an end unsolved costs 1."""
    if node.solved:
        return 1.0
    worth = node.gained / (1 + abs(node.gained))
    return max(-1.0, worth - 1.0) if ended(node) else worth


async def progress(session: Session, trial: Trial, node: Node) -> float:
    """Progress in [0, 1]; an end unsolved costs 1.

    Raises:
        CapabilityMissing: the world declares none.
    """
    share = node.signals.progress
    if share is None:
        raise CapabilityMissing(
            f"'{session.task.environment}' declares no progress; use another scorer: reward, say."
        )
    if node.solved:
        return 1.0
    return share - 1.0 if ended(node) else share


async def oracle(session: Session, trial: Trial, node: Node) -> float:
    """1 / (1 + length of the reference solution from here); -1 where it knows none."""
    if node.solved or ended(node):
        return 1.0 if node.solved else -1.0
    left = len(await session.world.oracle())
    return 1 / (1 + left) if left else -1.0


async def judge(session: Session, trial: Trial, node: Node) -> float:
    """A model's number between 0 and 100 as a share; 0 where it gives none."""
    if node.solved or ended(node):
        return 1.0 if node.solved else -1.0
    return await judged(session, node.messages)


async def judged(session: Session, messages: Sequence[Message]) -> float:
    """What the judge says of a conversation."""
    reply = await session.generate([system(QUESTION), user(told(messages))], role="judge")
    number = re.search(r"\d+(?:\.\d+)?", reply.text)
    return min(float(number[0]), 100.0) / 100.0 if number else 0.0


async def learned(session: Session, trial: Trial, node: Node) -> float:
    """The number that the role "scorer" answers to the conversation so far, cut to [-1, 1].

    Raises:
        InputError: no model of its own plays that role, or it says no number.
    """
    if node.solved or ended(node):
        return 1.0 if node.solved else -1.0
    if SCORER not in session.models:
        raise InputError(
            "scorer=learned needs a scorer; learn one with `palaestra agents learn value RUN --out "
            f"FOLDER`, and give --role {SCORER}=FOLDER."
        )
    reply = await session.generate(node.messages, role=SCORER)
    try:
        return min(1.0, max(-1.0, float(reply.text)))
    except ValueError:
        raise InputError(
            f"'{reply.policy}' says {reply.text[:20]!r}, which is no number; give --role "
            f"{SCORER}= a folder of `palaestra agents learn`."
        ) from None


def told(messages: Sequence[Message]) -> str:
    """A conversation as one text, each action behind a `>`."""
    lines = (f"> {m.content.strip()}" if m.role == "assistant" else m.content for m in messages)
    return "\n".join(lines)


def asks_for_value(messages: Sequence[Message]) -> bool:
    """Whether a prompt is one of `judged`."""
    return messages[0].content == QUESTION


def value_of(actions: Sequence[Action]) -> str:
    """What a judge who knows the way says where these actions are left of it."""
    return f"{100 / (1 + len(actions)):.2f}"


def ended(node: Node) -> bool:
    """Whether the world has ended in this state."""
    done = node.transition
    return done is not None and (done.terminated or done.truncated)


SCORERS: dict[str, Scorer] = {
    "reward": reward,
    "progress": progress,
    "oracle": oracle,
    "judge": judge,
    "learned": learned,
}


def find_scorer(name: str) -> Scorer:
    """The scorer of that name, or `module:function`.

    Raises:
        UnknownName: there is none.
    """
    if name in SCORERS:
        return SCORERS[name]
    module, _, function = name.partition(":")
    try:
        found: Scorer = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError):
        raise UnknownName("scorer", name, SCORERS) from None
    return found
