"""What a person answers who is asked about a task: a program that looks for key words."""

from __future__ import annotations

import re

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
    asked = set(re.findall(r"\w+", question.casefold()))
    known = call.state.find(FACT, owner=call.person)
    answers = [row["answer"] for row in known if asked & set(row["keywords"].split())]
    return {"answer": "\n".join(answers) or UNKNOWN}


VERBS = (ask,)
