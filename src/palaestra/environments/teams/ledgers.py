"""The two ledgers of an orchestrator: of the task (facts, guesses, plan), and of each turn.

Source: Fourney et al. 2024 (Magentic-One).
"""

from __future__ import annotations

from dataclasses import dataclass

from palaestra.core.team_words import PLAN_ENTRIES, TURN_ENTRIES, entries
from palaestra.environments.teams.votes import plain


@dataclass(frozen=True, slots=True)
class TurnLedger:
    """What an orchestrator says of a turn."""

    done: bool
    stalled: bool
    next: str  # a worker and its work, or what has to be done; empty only if done


def plan_problem(text: str) -> str | None:
    """Return why a text is no ledger of the task; None: it is one."""
    found = entries(text, PLAN_ENTRIES)
    missing = [f"{name}:" for name in PLAN_ENTRIES if not found.get(name)]
    if not missing:
        return None
    wanted = "write facts:, guesses: and plan:, each on a line of its own"
    return f"The ledger lacks {' and '.join(missing)}; {wanted}."


def parse_turn(text: str) -> TurnLedger | str:
    """Return the ledger of a turn, or why a text is none."""
    found = entries(text, TURN_ENTRIES)
    answers = {}
    for name in ("done", "stalled"):
        first = plain(found.get(name, "")).split(" ")[0].strip(",;:*")
        if first not in ("yes", "no"):
            return f"Write {name}: yes, or {name}: no, on a line of its own."
        answers[name] = first == "yes"
    if not answers["done"] and not found.get("next"):
        return "Write next: on a line of its own, with a worker and what it shall do."
    return TurnLedger(answers["done"], answers["stalled"], found.get("next", ""))
