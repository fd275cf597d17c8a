"""The words of a task, by a model, and a committee that reviews them.

A writer reads what the reference does, and asks for it as a person would. Two checks without a
model come first: each value that the reference could know only from the request stands in it, and
no name of an API does. Then each reviewer accepts or says what is wrong; the majority decides, and
the writer reads what was said (APIGen-MT, Prabhakar et al. 2025: a committee of reviewers whose
feedback goes back to the generator). What is wanted of the agent stays the reference's effect,
which passed the gate.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra.core.errors import InputError
from palaestra.core.model import Model
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.world import World
from palaestra.synthesis.asking import ask, json_in
from palaestra.synthesis.domain_file import Review

WRITER = (
    "You write what a person asks of an assistant, in the person's own words. Reply with a JSON "
    'object such as {"instruction": "…"} and nothing else.'
)
ASKED = """\
Domain: {about}
What the assistant must do, in plain terms: {instruction}
The calls that do it:
{calls}
Write the request as a person would say it. Keep all names, numbers and dates exactly; mention no \
call and no id."""

REVIEWER = (
    "You review what a person asks of an assistant: is it clear, natural, and exactly what the "
    'calls do? Reply with a JSON object {"accept": true, "why": ""} and nothing else.'
)


@dataclass(slots=True)
class Reworded:
    """What came of rounds of writing and reviews."""

    text: str | None = None  # None: no round was accepted
    rejected: Counter[str] = field(default_factory=Counter)


async def reworded(
    model: Model, about: str, task: Composition, world: World, review: Review, rng: random.Random
) -> Reworded:
    """Return the first words of a model that pass the checks and the committee.

    Args:
        model: the writer and all reviewers, in conversations of their own.
        about: the domain.
        task: what is asked for; it passed the gate.
        world: in which nothing has happened.
        review: how many reviewers and rounds.
        rng: draws the seeds of the model's replies.
    """
    ran, _ = task.reference(world)
    calls = "\n".join(f"{made.api}({dict(made.arguments)})" for made in ran.calls)
    question = ASKED.format(about=about, instruction=task.instruction, calls=calls)
    found, asked = Reworded(), question
    for _ in range(review.rounds):
        reply = await ask(model, WRITER, asked, rng.getrandbits(32))
        try:
            text = instruction_in(reply)
        except InputError as error:
            found.rejected["words: no JSON with an instruction"] += 1
            asked = f"{question}\n\nYour last reply was refused: {error}."
            continue
        wrong = list(ungrounded(text, task, world))
        if wrong:
            found.rejected["words: a value or an API"] += 1
        else:
            wrong = await _objections(model, text, question, review, rng)
            if len(wrong) * 2 < review.reviewers:
                found.text = text
                return found
            found.rejected["words: the committee"] += 1
        feedback = "\n".join(f"- {one}" for one in wrong)
        asked = f"{question}\n\nYou wrote: {text}\nIt was refused:\n{feedback}\nWrite it anew."
    return found


def instruction_in(reply: str) -> str:
    """Return the instruction of a reply; raises InputError if there is none."""
    text = json_in(reply).get("instruction")
    if not isinstance(text, str) or not text.strip():
        raise InputError("the reply has no text under 'instruction'")
    return " ".join(text.split())


def ungrounded(text: str, task: Composition, world: World) -> Iterator[str]:
    """Yield what a request lacks or must not say, each as a sentence without its full stop.

    A person's values are those of the reference's arguments that its plain words hold, too; ids,
    which a search finds, are not among them.
    """
    ran, _ = task.reference(world)
    said, plain = text.casefold(), task.instruction.casefold()
    for api in dict.fromkeys(call.api for call in ran.calls):
        if api in said or api.partition(".")[2] in said:
            yield f"it names the call {api}"
    values = (value for call in ran.calls for value in _values(call.arguments))
    for value in dict.fromkeys(map(str, values)):
        if _says(plain, value) and not _says(said, value):
            yield f"it does not say '{value}'"


def _says(text: str, value: str) -> bool:
    """Return whether a text holds a value as words of its own; 25.0 may be written 25."""
    forms = {value.casefold(), value.casefold().removesuffix(".0")}
    return any(re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text) for form in forms)


def _values(arguments: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the texts and numbers among arguments; yes and no have many words."""
    for value in arguments.values():
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            yield value


async def _objections(
    model: Model, text: str, question: str, review: Review, rng: random.Random
) -> list[str]:
    """Return why reviewers do not accept; a reply that is no verdict is an objection."""
    found = []
    for _ in range(review.reviewers):
        asked = f"{question}\n\nThe request: {text}"
        reply = await ask(model, REVIEWER, asked, rng.getrandbits(32))
        try:
            verdict = json_in(reply)
        except InputError as error:
            found.append(str(error))
            continue
        if verdict.get("accept") is not True:
            found.append(str(verdict.get("why") or "no reason was given"))
    return found
