"""The words of a team's protocol: what members are asked for, and the replies that mean something.

They are part of prompts, so a model that reads them (`models/scripted/reader.py`) needs the very
words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PASS = "(pass)"  # the reply of a member that says, proposes, bids or decides nothing
DONE = "done"  # of a moderator: nobody speaks any more
HALT = "halt"  # of a member with this right: the talk of this turn is over
ACCEPT = "accept"  # the beginning of a review that has nothing against a proposal
WRONG = "wrong"  # the beginning of a review against a proposal
GO_ON = "go on"  # of a supervisor: the team may repeat itself
SPAWN = "spawn"  # of a member with this right, before a name: that member joins
REPORT = "report:"  # the beginning of a worker's reply that is for the orchestrator, and no action
DID = "Your team did: "  # before an action of the environment that the team has taken
PLAN_ENTRIES = ("facts", "guesses", "plan")  # of an orchestrator's outer ledger
TURN_ENTRIES = ("done", "stalled", "next")  # of its inner ledger

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
    "plan": "Write the ledger of the task: entries that begin with facts:, guesses: and plan:.",
    "ledger": "Write the ledger of this turn in three lines: done: yes or no, stalled: yes or no, "
    "next: WORKER: what it shall do (or what has to be done, and the best suited does it).",
    "work": f"Reply with the action, or begin with {REPORT} if you only have something to say.",
    "report": "Reply with what you have to say.",
    "supervise": f"Say: {HALT}, or: {GO_ON}.",
}
"""What members are asked for, by stage, for votes by rule, and by an orchestrator: the last line of
their prompts."""

NEXT = "Reply with the action that {} will take next."
LAST = "Reply with the action that {} took last."
CHECK = "Is this action possible, and fits with what you expect of others? Reply yes or no: {}"
"""What an agent asks about a partner (`agents/beliefs.py`): the last line of a prompt."""


def proposal(member: str, text: str) -> str:
    """Return how the others read a proposal."""
    return f"{member} proposes: {text}"


_BEGINS = re.compile(r"^(?:Your team [^:\n]*|([\w.-]+)( proposes)?): ", re.MULTILINE)
"""The beginning of a reply, or of what a team did or is asked for."""


class Reply(NamedTuple):
    """What a member reads of another one."""

    member: str
    text: str
    proposes: bool


def replies_in(text: str) -> list[Reply]:
    """Return the replies of others in what a member sees, also those of several lines."""
    for asked in ASKED.values():
        text = text.removesuffix(asked)
    found = list(_BEGINS.finditer(text))
    ends = [*(match.start() for match in found), len(text)][1:]
    return [
        Reply(match[1], text[match.end() : end].strip(), match[2] is not None)
        for match, end in zip(found, ends, strict=False)
        if match[1]
    ]


def answer_parts(text: str) -> dict[str, str]:
    """Return the parts of an action by their first words: of "dose: 5 mg; visit: soon", two.

    A part ends at "; " or at a line that does not begin with a space, so the parts of a Python
    module are its imports, its functions and its assertions ("import", "def", "assert").
    """
    found: dict[str, str] = {}
    between = "\n" if "\n" in text else "; "
    for piece in re.split(r"\n(?=\S)" if between == "\n" else "; ", text.strip()):
        key = piece.partition(" ")[0].rstrip(":")
        found[key] = f"{found[key]}{between}{piece}" if key in found else piece
    return found


def expected(player: str, action: str) -> str:
    """Return how an agent notes what it expects of another player."""
    return f"{player}: {action}"


def proposed(line: str) -> tuple[str, str] | None:
    """Return member and text of a line by `proposal`; None for any other line."""
    member, between, text = line.partition(" proposes: ")
    return (member, text) if between else None


def worker_line(member: str, skills: str) -> str:
    """Return the line in which an orchestrator reads of a worker."""
    return f"- {member}: {skills}" if skills else f"- {member}"


def listed_worker(line: str) -> tuple[str, str] | None:
    """Return member and skills of a line by `worker_line`; None for any other line."""
    if not line.startswith("- "):
        return None
    member, _, skills = line[2:].partition(": ")
    return member, skills


def instruction(text: str) -> str:
    """Return how a worker reads what it shall do."""
    return f"Your work: {text}"


def instructed(line: str) -> str | None:
    """Return what a worker shall do by a line of `instruction`; None for any other line."""
    before, between, text = line.partition("Your work: ")
    return text if between and not before else None


def skilled(skills: str) -> str:
    """Return how a member reads what it is good at."""
    return f"Your skills: {skills}."


def skills_in(text: str) -> str:
    """Return the skills that a text states by `skilled`; empty: none."""
    return text.partition("Your skills: ")[2].partition(".")[0]


def took_work(member: str) -> str:
    """Return how an orchestrator reads who was found to do what it wanted."""
    return f"{member} took the work."


def taken(line: str) -> str | None:
    """Return the member of a line by `took_work`; None for any other line."""
    member, between, after = line.partition(" took the work.")
    return member if between and not after else None


def entries(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the entries of a ledger by name, as far as it has them; of a repeated one the last.

    Args:
        text: lines; an entry begins with its name and a colon, with or without list marks and
            emphasis around the name, and ends before the next one.
        names: of the entries, in lower case.
    """
    marks = r"[\s*#_`>-]*"
    pattern = rf"(?im)^{marks}(?:\d+[.)])?{marks}({'|'.join(names)})[*_`]*:[*_`]*"
    found = list(re.finditer(pattern, text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    return {
        match[1].lower(): text[match.end() : end].strip()
        for match, end in zip(found, ends, strict=False)  # none found: one end
    }


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
