"""Wrong solutions of a task: its reference with one thing changed that matters.

They are planted to see whether a verifier rejects them (`scripts/apps_audit.py`). Besides what the
gate tries, a call is left out, made twice, or has another value in one argument; something else is
changed, too; the answer is another one. What leaves the same rows, such as a question in other
words, is not wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from palaestra.environments.families.apps.compiler.api import Api
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.goal import MAIN, Call, mine
from palaestra.environments.families.apps.composing.verifier import MARKS
from palaestra.environments.families.apps.state import Change
from palaestra.environments.families.apps.world import World

NOTHING = "Hello."  # a text that mentions nothing


@dataclass(frozen=True, slots=True)
class Solution:
    """Calls and an answer."""

    label: str
    calls: tuple[Call, ...]
    answer: Any = None


def wrong_solutions(world: World, task: Composition, rng: random.Random) -> Iterator[Solution]:
    """Yield wrong solutions of a task, in a world that nobody has touched."""
    ran, _ = task.reference(world)
    calls, answer = tuple(ran.calls), ran.answer
    changes, _ = _left(world, calls)

    def same(others: tuple[Call, ...]) -> bool:
        """Return whether calls leave the same rows, and it does not matter when."""
        return not task.windows and _left(world, others)[0] == changes

    right = [call for variant in task.variants(world) for call in variant.reference(world)[0].calls]
    for at, made in enumerate(calls):
        api = world.suite.apis[made.api]
        if not api.changes:
            continue
        rest = calls[at + 1 :]
        if not same(calls[:at] + rest):
            yield Solution(f"without {made.api}", calls[:at] + rest, answer)
        twice = (*calls[: at + 1], made, *rest)
        left, accepted = _left(world, twice)
        if accepted and left != changes:
            yield Solution(f"{made.api} twice", twice, answer)
        for name, value in made.arguments.items():
            for other in other_values(world, api, name, value, task.mentions, rng):
                changed = Call(made.api, {**made.arguments, name: other})
                if changed in right or same((*calls[:at], changed, *rest)):
                    continue  # as right as the reference
                label = f"{made.api} with {name} {other!r}"
                yield Solution(label, (*calls[:at], changed, *rest), answer)
    with closing(world.fork()) as done:
        for made in calls:
            done.call(made.api, made.arguments, MAIN)
        for extra in _collateral(world, calls, rng):
            if _left(done, [extra])[1]:
                yield Solution(f"also {extra.api}", (*calls, extra), answer)
    if answer is not None:
        for wrong in _wrong_answers(answer):
            yield Solution(f"answer {wrong!r}", calls, wrong)


def other_values(
    world: World, api: Api, name: str, value: Any, mentions: Sequence[str], rng: random.Random
) -> Iterator[Any]:
    """Yield other values for an argument, which make the call another one."""
    schema: Mapping[str, Any] = api.parameters["properties"].get(name, {})
    columns = [
        entity.fields[name]
        for entity in world.suite.blueprints[api.app].entities.values()
        if name in entity.fields
    ]
    if any(column.free for column in columns):
        if any(mention in value for mention in mentions):
            yield NOTHING
        return
    if "enum" in schema:
        yield from (choice for choice in schema["enum"] if choice != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield from (value + 1, value + 10, max(1, value - 1) if value > 1 else value + 2)
    elif "@" in value:
        people = [row["email"] for row in world.state.rows("supervisor.person")]
        others = sorted({email for email in people if email != value})
        yield from rng.sample(others, min(3, len(others)))
    else:
        yield from (f"{value} 2", value[:-1] or "x", "zebra")


def _collateral(world: World, calls: Sequence[Call], rng: random.Random) -> Iterator[Call]:
    """Yield changes that nobody asked for, of rows that the reference does not touch."""
    touched = {value for made in calls for value in made.arguments.values() if type(value) is int}
    for name, api in sorted(world.suite.apis.items()):
        way, _, noun = api.name.partition("_")
        table = f"{api.app}.{noun}"
        if way != "delete" or table not in world.state.columns:
            continue
        rows = [row for row in mine(world, table) if row["id"] not in touched]
        for row in rng.sample(rows, min(2, len(rows))):
            yield Call(name, {f"{noun}_id": row["id"]})
    people = world.state.rows("supervisor.person", "id <> ?", [MAIN])
    if "mail.send_message" in world.suite.apis:
        text = {"subject": "Hi", "body": NOTHING}
        yield Call("mail.send_message", {"recipient": rng.choice(people)["email"], **text})
    if "bank.send_money" in world.suite.apis:
        yield Call("bank.send_money", {"payee": rng.choice(people)["email"], "amount": 1.0})


Rows = list[tuple[str, str, int, dict[str, Any]]]


def _left(world: World, calls: Sequence[Call]) -> tuple[Rows, bool]:
    """Return what calls change, but for the times that services set; and whether none is refused.

    What happens meanwhile is no change of theirs.
    """
    with closing(world.fork()) as fork:
        replies = [fork.call(call.api, call.arguments, MAIN) for call in calls]
        rows = [
            (one.table, one.kind, one.id, _without_times(world, one))
            for one in fork.state.changes()
        ]
        return rows, all(reply.ok for reply in replies)


def _without_times(world: World, change: Change) -> dict[str, Any]:
    columns = world.state.columns[change.table]
    times = {
        name
        for name, column in columns.items()
        if column.by == "service" and column.type in ("time", "date")
    }
    return {name: value for name, value in change.values.items() if name not in times}


def _wrong_answers(answer: Any) -> Iterator[Any]:
    yield ""
    yield "I do not know."
    if isinstance(answer, (int, float)) and not isinstance(answer, bool):
        yield from (answer + 1, answer + 10, f"{answer} or {answer + 1}")
    else:
        text = str(answer).strip(MARKS)
        yield from (f"{text} 2", text[:-1])
