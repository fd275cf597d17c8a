"""The words of decentralised routing: what holders of a task are told, and may reply.

Like `team_words`, they are part of prompts, and models that read them need the very words.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FORWARD = "forward"  # followed by a member's name
SPLIT = "split"  # followed by parts with | between them
TOGETHER = "Reply with the action, from the answers to its parts."
REPLY = "Reply with the action"  # the beginning of what a holder is asked for, where it may do more
_PART = "Part of the task: "
_ANSWER = " Answer: "


class Work(NamedTuple):
    """How a member did in tasks that are similar to the present one."""

    member: str | None  # None: the reader of the prompt itself
    solved: float  # by similarity
    tried: float


def routing_asked(forward: bool, split: bool) -> str:
    """Return what a holder is asked for."""
    more = [f"{FORWARD} NAME"] * forward + [f"{SPLIT} PART | PART"] * split
    return ", or: ".join([REPLY, *more]) + "."


def part(text: str, answer: str | None = None) -> str:
    """Return the line about a part of a task, with its answer once it has one."""
    return f"{_PART}{text}" if answer is None else f"{_PART}{text}{_ANSWER}{answer}"


def read_part(line: str) -> tuple[str, str | None] | None:
    """Return part and answer of a line by `part`; None for any other line."""
    if not line.startswith(_PART):
        return None
    text, between, answer = line.removeprefix(_PART).rpartition(_ANSWER)
    return (text, answer) if between else (answer, None)


def work(done: Work, edge: float = 1.0) -> str:
    """Return the line about a member's work, with the weight of the edge to it."""
    said = f"solved {done.solved:.1f} of {done.tried:.1f} similar tasks"
    return f"You {said}." if done.member is None else f"{done.member} {said}; edge {edge:.2f}."


def read_work(line: str) -> Work | None:
    """Return what a line by `work` says; None for any other line."""
    found = re.match(r"(.+) solved ([\d.]+) of ([\d.]+) similar tasks", line)
    if found is None:
        return None
    member = None if found[1] == "You" else found[1]
    return Work(member, float(found[2]), float(found[3]))


def unnumbered(text: str) -> str:
    """Return a task without the number of a line, which says nothing about what it needs."""
    return re.sub(r"^\d+\. ", "", text)
