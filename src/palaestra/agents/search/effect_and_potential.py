"""The two values of a state for a subtask: the effect of the last action, and what is possible now.

Source: Zhang et al. 2024 (WebPilot).
"""

from __future__ import annotations

import re

from palaestra.agents.search.scorers import transcript
from palaestra.agents.search.tree import Node
from palaestra.core.message import system, user
from palaestra.core.session import Session

VALUE = (
    "You judge the last action of an attempt at a subtask. Reply with two numbers from 0 to 10.\n"
    "Effect: how much the action did for the subtask.\n"
    "Potential: how likely the subtask is completed from here; 10 if it is completed."
)
NOW = "\n\nThe subtask: "


async def effect_and_potential(session: Session, node: Node, subtask: str) -> tuple[float, float]:
    """Ask the judge about the last action of a tried state; return both numbers as shares.

    A number that the reply lacks is 0.
    """
    asked = user(f"{NOW.strip()} {subtask}\n\n{transcript(node.messages[1:])}")
    reply = await session.generate([system(VALUE), asked], role="judge")
    effect, potential = (
        min(float(found[1]) / 10, 1.0)
        if (found := re.search(rf"{word}:\s*(\d+(?:\.\d+)?)", reply.text))
        else 0.0
        for word in ("Effect", "Potential")
    )
    return effect, potential


def changed(asked: str) -> bool:
    """Return whether the last observation of a transcript differs from the one before it."""
    *_, before, after = ["", *re.split(r"^> .*$", asked, flags=re.MULTILINE)]
    return before.strip() != after.strip()
