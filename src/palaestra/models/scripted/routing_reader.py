"""How the reader plays in decentralised routing: it forwards, splits and joins by what it reads.

It samples how well each member would do from Beta(solved + 1, failed + 1) by the similar tasks in
its prompt, and forwards the task unless it is the best itself (Thompson sampling, Thompson 1933).
A task of several numbered lines ("1. …") has one word of the right action for each; the reader
splits it into its lines, answers a line with its word, and joins the words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from palaestra.core.message import Message
from palaestra.core.routing_words import FORWARD, REPLY, SPLIT, Work, read_part, read_work
from palaestra.core.team_words import skills_in


def route(text: str, prompt: str, asked: str, rng: random.Random) -> str | None:
    """Return the reply that forwards or splits a task; None: it does the task itself.

    Args:
        text: of the last message.
        prompt: all of it.
        asked: the last line of it.
        rng: decides whom it trusts.
    """
    if not asked.startswith(REPLY):
        return None
    lines = numbered(prompt)
    if SPLIT in asked and len(lines) > 1:
        return f"{SPLIT} {' | '.join(lines)}"
    if FORWARD not in asked:
        return None
    known = [one for line in text.splitlines() if (one := read_work(line)) is not None]
    best = max(known, key=lambda one: _sampled(one, rng))
    return None if best.member is None else f"{FORWARD} {best.member}"


def tasks_at_hand(messages: Sequence[Message]) -> list[str]:
    """Return the part, the task or its numbered lines that a holder is asked to do.

    Empty if no task is routed to it.
    """
    last = messages[-1].text
    if not last.splitlines()[-1].startswith(REPLY):
        return []
    part = part_at_hand(last)
    if part is not None:
        return [part]
    lines = [line for one in messages for line in one.text.splitlines() if not skills_in(line)]
    text = "\n".join(lines)
    return numbered(text) or [text]


def part_at_hand(text: str) -> str | None:
    """Return the part that the last message asks for; None: it asks for the whole task."""
    found = [one for line in text.splitlines() if (one := read_part(line)) is not None]
    return found[0][0] if found and found[0][1] is None else None


def joined(text: str) -> str:
    """Return the answers to all parts in the last message as one action."""
    found = [one for line in text.splitlines() if (one := read_part(line)) is not None]
    return " ".join(answer for _, answer in found if answer is not None)


def word_of(part: str, action: str) -> str:
    """Return the word of an action that belongs to a numbered line; all of it if none does."""
    number, words = re.match(r"\d+", part), action.split()
    if number is None or not 0 < int(number[0]) <= len(words):
        return action
    return words[int(number[0]) - 1]


def numbered(text: str) -> list[str]:
    """Return the numbered lines of a task."""
    return re.findall(r"^\d+\. .*$", text, re.MULTILINE)


def _sampled(work: Work, rng: random.Random) -> float:
    return rng.betavariate(work.solved + 1, work.tried - work.solved + 1)
