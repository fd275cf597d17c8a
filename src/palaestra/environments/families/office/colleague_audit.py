"""The audit of colleagues who are played by a model: does each keep to their part?

It is that of the desks' users (`desk/audit.py`), against the program of the same colleague, with
what is particular to colleagues. These are faults of the environment, of the kind "user":

- a fact invented, or one that only another colleague knows;
- a fact told that was not asked for, or to somebody who is not entitled to it;
- a yes or a no against their own opinion;
- a change that nobody asked for, or another one than that;
- what they were asked for, and were to tell or to do, held back until the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.desk import audit
from palaestra.environments.families.desk.user import PERSONAS, Act, Intent, Memory, mentions
from palaestra.environments.families.office.colleague import Colleague, Fact
from palaestra.environments.families.office.colleagues_app import (
    COLLEAGUE,
    EXCHANGE,
    FACT,
    exchanges,
    present_part,
)

SHORTEST = 4  # characters of a value that nobody says by chance
PART = (
    "You are {name}, a colleague of {asker}, and somebody who acts for them writes to you. "
    "{persona} Reply with one message, or with one tool call; never with both. Invent nothing."
)
DOING = (
    "If you are asked to approve a change of somebody else, to give a ticket that you reported "
    "another priority, or to add somebody to a chat room that you opened, do that with your tools, "
    "and then say so. Change nothing else. If it was done before, say so."
)


def fault_of_reply(
    state: State,
    colleague: Colleague,
    memory: Memory,
    intent: Intent,
    said: str,
    asked: str,
    heard: Iterable[str],
) -> str | None:
    """Return what is wrong with a reply; None if it keeps to the part.

    Args:
        state: of the world, which has what the other colleagues know.
        colleague: the program of the one who replies, for this message.
        memory: what they have said before.
        intent: what the program would do.
        said: the reply.
        asked: the message.
        heard: all that they have read and said before, the message included.
    """
    texts = " ".join(heard)
    for fact in colleague.part.facts:
        if colleague.entitled(fact, asked):
            continue
        for secret in filter(None, (fact.value, fact.proof)):
            if mentions(said, secret) and not mentions(texts, secret):
                return f"the colleague told '{secret}' to somebody who is not entitled to it"
    own = " ".join([*colleague.scenario.known.values(), texts])
    for row in state.rows(FACT, "owner <> ?", [colleague.part.id]):
        value = row["value"]
        if len(value) >= SHORTEST and mentions(said, value) and not mentions(own, value):
            return f"the colleague told '{value}', which only another one knows"
    return audit.fault_of_message(colleague, memory, intent, said, asked, [texts])


def fault_of_change(intent: Intent, made: Call) -> str | None:
    """Return what is wrong with a change that a colleague makes; None if it was asked for."""
    wanted = intent.call if intent.act is Act.DO else None
    if wanted is not None and wanted.api == made.api:
        given = dict(made.arguments)
        more = {"comment"} & given.keys()  # whose wording is free
        if {key: value for key, value in given.items() if key not in more} == wanted.arguments:
            return None
    return f"the colleague used {made.api} with {dict(made.arguments)}, which nobody asked for"


def fault_at_the_end(state: State, asker: int) -> str | None:
    """Return what a colleague has held back until the end; None if nothing."""
    for row in state.rows(COLLEAGUE):
        before = exchanges(state, asker, row["owner"])
        program, memory = present_part(state, asker, row["owner"], "")
        due = [label for one in before for label in one["due"].split("\n") if label]
        calls = {one["due"] for one in before if one["due"].endswith(")")}
        replies = [one["reply"] for one in before]
        if found := audit.fault_at_the_end(program, memory, due, replies):
            return found
        done = {one["due"] for one in before if one["acted"] or one["output"]}
        if undone := sorted(calls - done):
            return f"the colleague never did what they were asked for: {undone[0]}"
    return None


def briefing(state: State, asker: int, colleague: Colleague) -> str:
    """Return the part of a model that plays a colleague."""
    me = state.get("supervisor.person", asker) or {}
    part, persona = colleague.part, PERSONAS[colleague.scenario.persona][1]
    knows = [f"- {_told(fact, part.assigned)}" for fact in part.facts]
    views = [
        f"- If you are asked about '{subject}': say {'yes' if agrees else 'no'}."
        for subject, agrees in part.opinions.items()
    ]
    return "\n".join(
        [
            PART.format(name=part.name, asker=me["name"], persona=persona),
            "What you know, and say only when you are asked for it, as it is written here:",
            *knows,
            *(["Whether you agree with what they want to do:", *views] if views else []),
            DOING,
        ]
    )


def pending(state: State) -> Row | None:
    """Return the message that waits for a reply; None if none does."""
    return next(iter(state.find(EXCHANGE, reply="")), None)


# ── details ──────────────────────────────────────────────────────────────────


def _told(fact: Fact, assigned: frozenset[str]) -> str:
    """Return a fact, and to whom it may be told."""
    if fact.knows:
        return f"{fact.label}: you do not know it; say that {fact.knows} does."
    told = f"{fact.label}: '{fact.value}'."
    if fact.proof:
        told += f" Ask for the {fact.proof_label} first, which is {fact.proof}; do not say that."
    if fact.ticket:
        told += f" Only whoever the ticket '{fact.ticket}' is assigned to may be told; "
        told += "they are." if fact.ticket in assigned else "they are not, so do not tell them."
    return told
