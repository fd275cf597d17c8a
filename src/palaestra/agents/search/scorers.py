"""Scorers: the value that a search assigns to a tried state, from -1 (lost) to 1 (solved).

A state in which the episode has ended needs no scorer. Otherwise a search is as good as its scorer.
They differ in the information that they use:

`reward`  the environment's rewards since the root: only what an agent can see.
`progress`  the share of the task that is done, where the environment declares it. Some
          environments measure it by their solution: then it is as privileged as `oracle`.
`oracle`  the length of the remaining reference solution, which no real model has. Where the
          reference does not detect a lost task, it is worse than `reward`.
`judge`   a model's estimate of the state's value (role "judge"), by Koh et al. 2024.
`learned`  a value model's estimate (role "scorer"): the value of the state (AgentRM, Xia et al.
          2025), or of the action that led to it (Zhai et al. 2024).

A custom scorer is `module:function`.
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
    """Return the rewards since the root, squashed into (-1, 1); an unsolved end costs 1."""
    if node.solved:
        return 1.0
    worth = node.gained / (1 + abs(node.gained))
    return max(-1.0, worth - 1.0) if ended(node) else worth


async def progress(session: Session, trial: Trial, node: Node) -> float:
    """Return the progress in [0, 1]; an unsolved end costs 1.

    Raises:
        CapabilityMissing: the environment declares none.
    """
    share = node.signals.progress
    if share is None:
        raise CapabilityMissing(
            f"'{session.task.environment}' declares no progress; use another scorer, such as "
            "reward."
        )
    if node.solved:
        return 1.0
    return share - 1.0 if ended(node) else share


async def oracle(session: Session, trial: Trial, node: Node) -> float:
    """Return 1 / (1 + length of the reference solution from here); -1 if there is none."""
    if node.solved or ended(node):
        return 1.0 if node.solved else -1.0
    left = len(await session.environment.oracle())
    return 1 / (1 + left) if left else -1.0


async def judge(session: Session, trial: Trial, node: Node) -> float:
    """Return a judge model's value of the state in [0, 1]."""
    if node.solved or ended(node):
        return 1.0 if node.solved else -1.0
    return await judged(session, node.messages)


async def judged(session: Session, messages: Sequence[Message]) -> float:
    """Return the judge's number between 0 and 100 as a share; 0 if it gives none."""
    reply = await session.generate([system(QUESTION), user(transcript(messages))], role="judge")
    number = re.search(r"\d+(?:\.\d+)?", reply.text)
    return min(float(number[0]), 100.0) / 100.0 if number else 0.0


async def learned(session: Session, trial: Trial, node: Node) -> float:
    """Return the number that the role "scorer" replies to the conversation, cut to [-1, 1].

    Raises:
        InputError: the role has no model, or its reply is not a number.
    """
    if node.solved or ended(node):
        return 1.0 if node.solved else -1.0
    if SCORER not in session.models:
        raise InputError(
            "scorer=learned needs a scorer; train one with `palaestra agents learn value RUN --out "
            f"FOLDER`, and give --role {SCORER}=FOLDER."
        )
    reply = await session.generate(node.messages, role=SCORER)
    try:
        return min(1.0, max(-1.0, float(reply.text)))
    except ValueError:
        raise InputError(
            f"'{reply.policy}' replied {reply.text[:20]!r}, which is not a number; give --role "
            f"{SCORER}=FOLDER with a folder of `palaestra agents learn`."
        ) from None


def transcript(messages: Sequence[Message]) -> str:
    """Return a conversation as one text, with each action behind a `>`."""
    lines = (f"> {m.text.strip()}" if m.role == "assistant" else m.text for m in messages)
    return "\n".join(lines)


def asks_for_value(messages: Sequence[Message]) -> bool:
    """Return whether a prompt is one of `judged`."""
    return messages[0].text == QUESTION


def value_of(actions: Sequence[Action]) -> str:
    """Return the judge's reply of an oracle plan with these actions left."""
    return f"{100 / (1 + len(actions)):.2f}"


def ended(node: Node) -> bool:
    """Return whether the environment has ended in this state."""
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
    """Return the scorer of that name, or `module:function`.

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
