"""The words of a team's protocol: what members are asked for, and the replies that mean something.

They are part of prompts, so a model that reads them (`models/scripted/reader.py`) needs the very
words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PASS = "(pass)"  # the reply of a member that says, proposes, bids or decides nothing
DONE = "done"  # of a moderator: nobody speaks any more
HALT = "halt"  # of a member with this right: the talk of this turn is over
ACCEPT = "accept"  # the beginning of a review that has nothing against a proposal

ASKED = {
    "talk": "Say something to your team.",
    "propose": "Propose an action.",
    "moderate": f"Name the member that speaks next, or say: {DONE}.",
    "bid": f"Bid a number to speak next, or say: {PASS}.",
    "act": "Decide: reply with the action.",
    "majority": "Vote: reply with the number of the best one.",
    "approval": "Vote: reply with the numbers of all that you approve, or: none.",
    "rate": "Rate each proposal from 0 to 5: reply with a number for each, in their order.",
    "ranked": "Vote: reply with the numbers from the best to the worst, such as 2 > 1.",
}
"""What members are asked for, by stage, and for votes by rule: the last line of their prompts."""

NEXT = "Reply with the action that {} will take next."
LAST = "Reply with the action that {} took last."
CHECK = "Is this action possible, and fits with what you expect of others? Reply yes or no: {}"
"""What an agent asks about a partner (`agents/beliefs.py`): the last line of a prompt."""


def proposal(member: str, text: str) -> str:
    """Return how the others read a proposal."""
    return f"{member} proposes: {text}"


def expected(player: str, action: str) -> str:
    """Return how an agent notes what it expects of another player."""
    return f"{player}: {action}"


def proposed(line: str) -> tuple[str, str] | None:
    """Return member and text of a line by `proposal`; None for any other line."""
    member, between, text = line.partition(" proposes: ")
    return (member, text) if between else None


def joint_plan(parts: Mapping[str, str]) -> str:
    """Return one action that says what each of several does: "robot1: wait; robot2: go"."""
    return "; ".join(f"{name}: {part}" for name, part in parts.items())


def parts_of(text: str) -> list[tuple[str, str]]:
    """Return name and part of each part of a joint plan; a part without a name has the name ""."""
    found = []
    for line in re.split(r"[;\n]", text):
        name, between, part = line.partition(":")
        if line.strip():
            found.append((name.strip(), part.strip()) if between else ("", line.strip()))
    return found
