"""Mixtures: agent examples and general ones in a fixed ratio, so that general skill is kept.

Source: AgentTuning (Zeng et al. 2023) and Agent-FLAN (Chen et al. 2024): a share of agent
trajectories, the rest general conversations. The loss of the mixture is
`share * L(agent) + (1 - share) * L(general)` in expectation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.draft import Draft
from palaestra.learning.data.examples.example import Example


def mixed(
    agent: Sequence[Example],
    general: Sequence[Example],
    count: int,
    *,
    share: float,
    seed: int,
) -> list[Example]:
    """Interleave `count` examples of two kinds evenly: every prefix keeps the ratio.

    Each kind is shuffled, and shuffled again whenever all of it was used.

    Args:
        share: of agent examples, in [0, 1]; the first n hold floor(n * share) of them.
        seed: of both orders; equal seeds give equal mixtures.

    Raises:
        InputError: a share outside [0, 1], or no examples of a kind that has a share.
    """
    if not 0 <= share <= 1:
        raise InputError(f"share = {share:g} is not in [0, 1]; give one from 0 to 1.")
    if (not agent and share > 0) or (not general and share < 1):
        kind = "agent" if share > 0 and not agent else "general"
        raise InputError(f"There are no {kind} examples to mix in; give some, or share 0 or 1.")
    exact = Fraction(share).limit_denominator(10**6)  # 0.29 * 100 is 28.999… in floats
    streams = (_endless(general, f"{seed}/general"), _endless(agent, f"{seed}/agent"))
    return [next(streams[(n + 1) * exact // 1 - n * exact // 1]) for n in range(count)]


def conversation_example(conversation: Sequence[Message], renderer: Renderer, key: Key) -> Example:
    """Turn a conversation of general data into an example: every assistant message is trained.

    Args:
        conversation: ends with a reply (an assistant message); none is first or follows another.
        renderer: of the policy that learns from it.
        key: counts as its rollout, e.g. Key("general", 17).

    Raises:
        InputError: the conversation is not of that form.
    """
    draft = Draft(key)
    known: list[Message] = []
    new: list[Message] = []
    number = 0
    for message in conversation:
        if message.role != "assistant":
            new.append(message)
            continue
        if not new:
            raise InputError(f"A reply of conversation {key} answers nothing; join it to another.")
        draft.add_context(renderer.extend(known, new, True) if known else renderer.start(new))
        draft.add_new_reply(renderer.reply(message), number)
        known += [*new, message]
        new = []
        number += 1
    row = draft.row()
    if row is None or new:
        raise InputError(f"Conversation {key} does not end with a reply; leave out what follows.")
    return Example(row)


def _endless(examples: Sequence[Example], seed: str) -> Iterator[Example]:
    turn = 0
    while True:
        order = list(examples)
        random.Random(f"{seed}/{turn}").shuffle(order)
        yield from order
        turn += 1
