"""What a person answers who is asked about a task: a program that looks for key words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from palaestra.environments.families.apps.compiler.api import Caller
from palaestra.environments.families.apps.compiler.verbs import reading
from palaestra.environments.families.apps.state import Row

FACT = "user.fact"
UNKNOWN = "I have nothing to say about that."


@reading
def ask(call: Caller, question: str) -> Row:
    """Ask the person for whom you act, if the task leaves something out.

    Args:
        question: about one thing

    Returns:
        answer: string
    """
    known = call.state.find(FACT, owner=call.person)
    return {"answer": told([(row["keywords"], row["answer"]) for row in known], question)}


def told(facts: Iterable[tuple[str, str]], question: str) -> str:
    """Return what somebody answers who knows some facts: those with a key word of the question.

    Args:
        facts: key words, separated by spaces, each with what is said.
        question: one that was asked.
    """
    asked = set(re.findall(r"\w+", question.casefold()))
    return "\n".join(fact for words, fact in facts if asked & set(words.split())) or UNKNOWN


VERBS = (ask,)
