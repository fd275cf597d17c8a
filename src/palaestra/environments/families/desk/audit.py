"""The audit of a user who is played by a model: does it keep to its part?

Up to a third of the failures on τ²-bench are mistakes of the simulated user (Barres et al. 2025).
Here each move of the user is compared with what the program of the same scenario would do. These
are faults of the environment, of the kind "user", and no failure of the agent:

- a fact invented: an address or number that neither the user's part nor the conversation has;
- a fact told too early: the value of a slot that was not asked for, or of a wish that is not due;
- a stop too soon: the user hangs up while something is open;
- a yes or a no against their own wish, or a tool used that nobody asked for;
- a fact held back until the end: of a wish that was due, or a slot that was asked for.

Whether the agent has succeeded in spite of it does not matter; else only failures would be left
out, and rates of success would be too high. The wording is free, and a user may ask something in
return, or answer later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.desk.scenario import Scenario, Wish
from palaestra.environments.families.desk.user import (
    NO,
    PERSONAS,
    YES,
    Act,
    Intent,
    Memory,
    Program,
    confirms,
    identifiers,
    mentions,
)


def fault_of_message(
    program: Program,
    memory: Memory,
    intent: Intent,
    said: str,
    asked: str,
    heard: Iterable[str],
) -> str | None:
    """Return what is wrong with a message of the user; None if it keeps to the part.

    Args:
        program: of the user's scenario.
        memory: what was said before.
        intent: what the part is to do now.
        said: the message.
        asked: the last message of the agent.
        heard: all that the user has read before, and said.
    """
    texts = list(heard)
    if early := _too_early(program, memory, intent, said, texts):
        return f"the {program.role} told '{early}' before it was due"
    if invented := _unknown(said, " ".join([*_facts(program.scenario), *texts])):
        return f"the {program.role} invented '{invented}'"
    if intent.act in (Act.DENY, Act.CHANGE) and confirms(asked, said):
        return f"the {program.role} agreed to what they do not want"
    if intent.act is Act.CONFIRM and NO.search(said):
        return None if YES.search(said) else f"the {program.role} declined what they want"
    return None


def fault_of_call(program: Program, asked: str, call: Call) -> str | None:
    """Return what is wrong with a change that the user makes with a tool of their own.

    The last message of the agent must be about it; how it asks is free.
    """
    about = (one.topic for one in program.gestures if one.api == call.api)
    if any(re.search(topic, asked, re.IGNORECASE) for topic in about):
        return None
    return f"the {program.role} used {call.api}, which nobody asked for"


def fault_of_stop(intent: Intent) -> str | None:
    """Return what is wrong with hanging up now."""
    return None if intent.act is Act.STOP else "the user hung up too soon"


def fault_at_the_end(
    program: Program, memory: Memory, asked: Iterable[str], said: Iterable[str]
) -> str | None:
    """Return what the user held back until the end of a conversation; None if nothing.

    Args:
        program: of the user's scenario.
        memory: what was said.
        asked: the slots that the agent asked for.
        said: the messages of the user.
    """
    scenario, spoken = program.scenario, " ".join(said)
    known = scenario.known.keys() - scenario.forgotten - {"name"}
    if missing := sorted((known & set(asked)) - set(memory.told)):
        return f"the {program.role} never told their {missing[0]}"
    for wish in _due_so_far(scenario, memory):
        for fact in wish.facts:
            if not mentions(spoken, fact):
                return f"the {program.role} never told '{fact}', which was due"
    return None


def briefing(program: Program) -> str:
    """Return the part of a model that plays the user."""
    scenario = program.scenario
    known = [f"- {name}: {value}" for name, value in scenario.known.items()]
    later = [
        f"When one thing is settled, ask for the next: {_told(w)}" for w in scenario.wishes[1:]
    ]
    if scenario.change is not None:
        later.insert(
            0,
            "When you are asked for the first time whether to go ahead, do not say yes; say that "
            f"you want something else instead: {_told(scenario.change)}",
        )
    forgotten = ", ".join(sorted(scenario.forgotten)) or "nothing"
    return "\n".join(
        [
            f"You are {scenario.name}. You call a service desk. {PERSONAS[scenario.persona][1]}",
            f"What you want: {_told(scenario.wishes[0])}",
            *later,
            "What you know, and say only when you are asked for it, as it is written here:",
            *known,
            f"What you have forgotten: {forgotten}. Invent nothing.",
            "If you are asked whether to go ahead with what you want, say yes; with anything else, "
            "say no. When all is done or refused, hang up. Begin with what you want.",
        ]
    )


# ── details ──────────────────────────────────────────────────────────────────


def _told(wish: Wish) -> str:
    facts = f" (say: {', '.join(wish.facts)})" if wish.facts else ""
    return wish.words[0] + facts


def _due_so_far(scenario: Scenario, memory: Memory) -> list[Wish]:
    """Return the wishes that the user was to say until now."""
    change = [scenario.change] if memory.changed and scenario.change is not None else []
    return [*scenario.wishes[: memory.wish + 1], *change]


def _due_now(program: Program, memory: Memory, intent: Intent) -> list[Wish]:
    """Return the wish that is to be said now, if there is one."""
    if intent.act is Act.CHANGE and program.scenario.change is not None:
        return [program.scenario.change]
    return [program.scenario.wishes[memory.wish + 1]] if intent.act is Act.NEXT else []


def _unknown(said: str, known: str) -> str | None:
    """Return an identifier that is not known; None if there is none.

    One whose numbers are all known is known: dates are said in many ways.
    """
    whole = identifiers(known)
    parts = {number for one in whole for number in re.findall(r"\d+", one)}
    for one in sorted(identifiers(said) - whole):
        numbers = re.findall(r"\d+", one)
        if not numbers or not set(numbers) <= parts:
            return one
    return None


def _facts(scenario: Scenario) -> list[str]:
    """Return all that the user's part has."""
    wishes = [*scenario.wishes, *([scenario.change] if scenario.change else [])]
    told = [text for wish in wishes for text in (*wish.words, *wish.facts)]
    return [scenario.name, *scenario.known.values(), *told]


def _too_early(
    program: Program, memory: Memory, intent: Intent, said: str, texts: list[str]
) -> str | None:
    """Return a fact that the message tells and that is not due; None if there is none."""
    scenario = program.scenario
    due = [*_due_so_far(scenario, memory), *_due_now(program, memory, intent)]
    free = [scenario.name, *texts, *(text for one in due for text in (*one.words, *one.facts))]
    free += [scenario.known[s] for s in (*memory.told, *intent.slots) if s in scenario.known]
    allowed = " ".join(free)
    later = [w for w in (*scenario.wishes, scenario.change) if w and w not in due]
    secret = [
        *(value for name, value in scenario.known.items() if name != "name"),
        *(fact for wish in later for fact in wish.facts),
    ]
    return next((s for s in secret if mentions(said, s) and not mentions(allowed, s)), None)
