"""Other right solutions of a task, found by search over the graph of APIs.

They are planted to see whether a verifier accepts them (`scripts/apps_audit.py`): what was searched
is found in a list, by pages, or by another of its fields; goals, and the rows of a for-each, are
done in another order; a wrong value is corrected; texts of free wording say more; a needless
question is asked, and a call is tried that is refused.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from palaestra.environments.families.apps.compiler.api import Api
from palaestra.environments.families.apps.composing.api_graph import ApiGraph
from palaestra.environments.families.apps.composing.branch import Branch
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.each import Each
from palaestra.environments.families.apps.composing.gaps import GapOperator
from palaestra.environments.families.apps.composing.goal import MAIN, Call, call
from palaestra.environments.families.apps.composing.verifier import run
from palaestra.environments.families.apps.composing.wrong_solutions import Solution
from palaestra.environments.families.apps.world import World

OPERATORS = (GapOperator, Branch, Each)  # whose goals do not depend on each other in a task
MOST_PAGES = 8  # of a list that is looked through
COLLEAGUE = "colleagues.colleague"
NEEDLESS = "How is the weather today?"


def right_solutions(world: World, task: Composition, rng: random.Random) -> Iterator[Solution]:
    """Yield other right solutions of a task, in a world that nobody has touched."""
    ran, _ = task.reference(world)
    calls, answer = tuple(ran.calls), ran.answer
    search = _Search(world, calls, answer)
    for at, made in enumerate(calls):
        api = world.suite.apis[made.api]
        if not api.changes:
            for label, others in search.other_reads(at):
                yield Solution(label, (*calls[:at], *others, *calls[at + 1 :]), answer)
        else:
            for label, others in search.corrected(at, rng):
                yield Solution(label, (*calls[:at], *others, *calls[at + 1 :]), answer)
            if free := _wordier(world, made):
                yield Solution("more words", (*calls[:at], free, *calls[at + 1 :]), answer)
    yield from _reordered(world, task, calls, answer, rng)
    yield Solution("refused first", (call("bank.show_nothing"), *calls), answer)
    if "user.ask" in world.suite.apis:
        asked = call("user.ask", question=NEEDLESS)
        yield Solution("needless question", (asked, *calls), answer)
    for row in world.state.rows(COLLEAGUE) if COLLEAGUE in world.state.columns else []:
        asked = call("colleagues.ask", email=row["email"], message=NEEDLESS)
        yield Solution("needless message to a colleague", (asked, *calls), answer)


class _Search:
    """Looks for other calls that lead to what a reference uses of a call."""

    def __init__(self, world: World, calls: Sequence[Call], answer: Any) -> None:
        self.world, self.graph = world, ApiGraph(world.suite)
        self.calls, self.answer = calls, answer

    def other_reads(self, at: int) -> Iterator[tuple[str, list[Call]]]:
        """Yield other reads after which all is known that the reference uses of one."""
        made = self.calls[at]
        table = self.graph.table(self.world.suite.apis[made.api])
        if not table:
            return
        fork = self.world.fork()
        for before in self.calls[:at]:
            fork.call(before.api, before.arguments, MAIN)
        body = fork.call(made.api, made.arguments, MAIN).body
        rows = _rows(body)
        used = self._used(rows, at)
        if not used:
            fork.close()
            return
        for api in self.graph.reads(table):
            for label, others in self._ways(api, rows, used, fork):
                if others != [made] and _known(fork, others, used):
                    yield label, others
        fork.close()

    def corrected(self, at: int, rng: random.Random) -> Iterator[tuple[str, list[Call]]]:
        """Yield another value first, and then the right one, where a row can be updated."""
        made = self.calls[at]
        app, name = made.api.split(".")
        way, _, noun = name.partition("_")
        update = self.world.suite.apis.get(f"{app}.update_{noun}")
        if way not in ("create", "update") or update is None:
            return
        for field, value in made.arguments.items():
            column = self.world.suite.blueprints[app].entities[noun].fields.get(field)
            if field not in update.parameters["properties"] or column is None:
                continue
            if column.type not in ("text", "money", "integer", "phone"):
                continue
            other = f"{value} "[::-1].strip() if isinstance(value, str) else value + 1
            wrong = Call(made.api, {**made.arguments, field: other})
            fork = self.world.fork()
            for before in self.calls[:at]:
                fork.call(before.api, before.arguments, MAIN)
            reply = fork.call(wrong.api, wrong.arguments, MAIN)
            if reply.ok and other != value:
                id = reply.body["id"]
                right = call(update.full_name, **{f"{noun}_id": id, field: value})
                if fork.call(right.api, right.arguments, MAIN).ok:
                    yield f"corrected {field}", [wrong, right]
            fork.close()

    def _used(self, rows: Sequence[dict[str, Any]], at: int) -> set[str]:
        """Return the values, as JSON, that come from these rows and are used later.

        Ids are used as ids, and other values as something else: an answer of 5 is no row 5.
        """
        ids, others = set[str](), {json.dumps(self.answer)} if self.answer is not None else set()
        for made in self.calls[at + 1 :]:
            for name, value in made.arguments.items():
                if not isinstance(value, bool):
                    (ids if name.endswith("_id") else others).add(json.dumps(value))
        found = {json.dumps(value) for row in rows for name, value in row.items() if name != "id"}
        return (ids & {json.dumps(row.get("id")) for row in rows}) | (others & found)

    def _ways(
        self, api: Api, rows: Sequence[dict[str, Any]], used: set[str], world: World
    ) -> Iterator[tuple[str, list[Call]]]:
        """Yield calls of one API that may answer the rows."""
        way, _, noun = api.name.partition("_")
        hits = [row for row in rows if used & {json.dumps(value) for value in row.values()}]
        if way == "list":
            for size in (5, 20):
                pages = [call(api.full_name, page=n + 1, per_page=size) for n in range(MOST_PAGES)]
                for number in range(1, MOST_PAGES + 1):
                    if _known(world, pages[:number], used):
                        yield f"list by pages of {size}", pages[:number]
                        break
        elif way == "show":
            ids = [row["id"] for row in hits]
            yield "show", [call(api.full_name, **{f"{noun}_id": id}) for id in ids]
        elif len(hits) == 1:
            app, name = self.graph.table(api).split(".")
            for field in self.world.suite.blueprints[app].entities[name].search:
                if isinstance(text := hits[0].get(field), str) and text:
                    yield f"search by {field}", [call(api.full_name, query=text, per_page=20)]


def _known(world: World, calls: Sequence[Call], used: set[str]) -> bool:
    """Return whether calls answer all of these values."""
    replies = [world.call(made.api, made.arguments, MAIN) for made in calls]
    rows = [row for reply in replies if reply.ok for row in _rows(reply.body)]
    found = {json.dumps(value) for row in rows for value in row.values()}
    return all(reply.ok for reply in replies) and used <= found


def _rows(body: Any) -> list[dict[str, Any]]:
    """Return the rows of an answer: those of a list, or the one that is shown."""
    lists = [value for value in body.values() if isinstance(value, list)] if body else []
    return list(lists[0]) if lists else [body]


def _wordier(world: World, made: Call) -> Call | None:
    """Return a call with more words in its texts of free wording."""
    if "body" not in made.arguments:
        return None
    body = f"Good day, I hope that you are well. {made.arguments['body']} With best wishes!"
    given = {**made.arguments, "body": body}
    return Call(made.api, given | ({"subject": "For you"} if "subject" in given else {}))


def _reordered(
    world: World,
    task: Composition,
    calls: Sequence[Call],
    answer: Any,
    rng: random.Random,
) -> Iterator[Solution]:
    """Yield the goals in another order, and the rows of which each is done the same."""
    if len(task.goals) > 1 and all(isinstance(goal.atom, OPERATORS) for goal in task.goals):
        for _ in range(2):
            goals = tuple(rng.sample(task.goals, len(task.goals)))
            fork = world.fork()
            ran = run(Composition(goals).steps(), fork, MAIN)
            fork.close()
            if goals != task.goals:
                yield Solution("other order of goals", tuple(ran.calls), ran.answer)
    for at in range(len(calls) - 1):
        one, other = calls[at], calls[at + 1]
        rows = [_row(made) for made in (one, other)]
        if one.api == other.api and world.suite.apis[one.api].changes and rows[0] != rows[1]:
            swapped = (*calls[:at], other, one, *calls[at + 2 :])
            yield Solution("other order of rows", swapped, answer)


def _row(made: Call) -> Any:
    """Return what a call is about: the row or the person that it names."""
    given = made.arguments
    ids = [value for name, value in given.items() if name.endswith("_id")]
    return ids or given.get("recipient", given.get("payee"))
