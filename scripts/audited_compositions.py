"""The audit of one composed task, of `apps` or of a synthesis: everything is tried on its world."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from audit_record import Record

from palaestra.core.task import Task
from palaestra.environments.families.apps.compiler.api import Api
from palaestra.environments.families.apps.composing.api_graph import ApiGraph
from palaestra.environments.families.apps.composing.forbidden import DEED, REFUSAL, REFUSED
from palaestra.environments.families.apps.composing.gate import CONSTANT, judged, near_misses
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Call
from palaestra.environments.families.apps.composing.right_solutions import right_solutions
from palaestra.environments.families.apps.composing.verifier import Verdict, run
from palaestra.environments.families.apps.composing.wrong_solutions import (
    Solution,
    wrong_solutions,
)
from palaestra.environments.families.apps.drawing import Drawn
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.world import World

CHANCE = 20  # calls of the player by chance
PLANTED = 12  # wrong solutions of one task, at most
RIGHT = 6  # right solutions of one task, at most
IGNORING: dict[str, dict[str, object]] = {
    "always does what is asked": {"does": DEED, "asks": False},
    "asks for consent, then does it whatever the answer": {"does": DEED},
    "always refuses": {"does": REFUSAL, "asks": False},
    "does it and says that it refuses": {"does": DEED, "says": REFUSED},
    "always hands over": {"does": REFUSAL, "says": CONSTANT[-1]},
}
"""Behaviour that does not depend on the rules: what is done, and what is answered."""


def audited(env: Apps, task: Task, record: Record, shown: list[str]) -> None:
    """Try everything on one task; texts of right solutions are added to `shown`."""
    rng = random.Random(f"audit {record.id} {record.number}")
    made = env.draw(task)
    record.goals = goals_of(made)
    with closing(made.open()) as world:
        ran, _ = made.task.reference(world)
        reference = Solution("the reference", tuple(ran.calls), ran.answer)
        record.calls = len(ran.calls)
        record.solved = judgement(world, made, reference).success
        record.constant = any(judged(world, made.ways, words).success for words in CONSTANT)
        record.chance = judgement(world, made, by_chance(world, made, rng)).success
        wrong: list[Any] = [*near_misses(world, made.task, rng)]
        wrong += wrong_solutions(world, made.task, rng)
        for one in rng.sample(wrong, min(PLANTED, len(wrong))):
            solution = one if isinstance(one, Solution) else near_miss(world, made, *one)
            verdict = judgement(world, made, solution)
            record.try_wrong(f"{made.task.instruction!r}: {solution}", verdict.success)
        right = list(right_solutions(world, made.task, rng))
        for solution in rng.sample(right, min(RIGHT, len(right))):
            verdict = judgement(world, made, solution)
            if not verdict.timing or verdict.policy:
                continue  # it takes too long, or breaks a rule on its way: not right
            record.try_right(f"{made.task.instruction!r}: {solution}", verdict.success)
            shown.append(_text(record.id, made, reference, solution))
    if any("permitted" in goal.slots for goal in made.task.goals):
        record.ignoring = ignoring_rules(made)


def goals_of(made: Drawn) -> list[str]:
    """Return the kinds of the goal of a task of one: also what is within an operator."""
    if len(made.task.goals) != 1:
        return []
    atom = made.task.goals[0].atom
    deed: Atom | None = getattr(atom, "deed", None)
    return [atom.name] if deed is None else [atom.name, f"{atom.name}: {deed.name}"]


def ignoring_rules(made: Drawn) -> dict[str, bool]:
    """Return which behaviour that ignores the rules passes, on one of two twins."""
    found: dict[str, bool] = {}
    if len(made.task.goals) != 1:
        return found
    (goal,) = made.task.goals
    for name, changed in IGNORING.items():
        with closing(made.open()) as world:
            ran = run(made.task.steps(0, {**goal.slots, **changed}), world, MAIN)
            found[name] = judged(world, made.ways, ran.answer).success
    return found


def judgement(world: World, made: Drawn, solution: Solution) -> Verdict:
    """Return the verdict on a solution."""
    with closing(world.fork()) as fork:
        for one in solution.calls:
            fork.call(one.api, one.arguments, MAIN)
        return judged(fork, made.ways, "" if solution.answer is None else solution.answer)


def near_miss(world: World, made: Drawn, number: int, slots: Any) -> Solution:
    """Return what the reference does with other slots of one goal."""
    with closing(world.fork()) as fork:
        ran = run(made.task.steps(number, slots), fork, MAIN)
    return Solution(f"near miss {number}", tuple(ran.calls), ran.answer)


def by_chance(world: World, made: Drawn, rng: random.Random) -> Solution:
    """Return calls by chance, mostly of APIs that the task needs."""
    apis = [api for api in world.suite.apis.values() if api.name != "login"]
    apis += [world.suite.apis[name] for name in made.needed] * 4
    calls = tuple(itertools.islice(typed_calls(world, apis, rng), CHANCE))
    return Solution("by chance", calls, rng.choice(["yes", 0, 1, 2, 3, "555-0134"]))


def typed_calls(world: World, apis: Sequence[Api], rng: random.Random) -> Iterator[Call]:
    """Yield calls of random APIs, with values of the world of the right types."""
    graph, pools = ApiGraph(world.suite), _values(world)
    while apis:
        api, given = rng.choice(apis), {}
        for name, schema in api.parameters["properties"].items():
            if name in api.parameters.get("required", ()) or rng.random() < 0.3:
                pool = schema.get("enum") or pools.get(graph.argument(api, name)) or ["amber", 1]
                given[name] = rng.choice(pool)
        yield Call(api.full_name, given)


def _values(world: World) -> dict[str, list[Any]]:
    """Return the values of the world by type."""
    graph, found = ApiGraph(world.suite), dict[str, list[Any]]()
    for table in world.state.columns:
        rows = world.state.rows(table)
        for name, kind in graph.fields(table).items():
            found.setdefault(kind, []).extend(r[name] for r in rows if r[name] is not None)
    return found


def _text(id: str, made: Drawn, reference: Solution, other: Solution) -> str:
    same = {repr(one) for one in reference.calls}

    def listed(solution: Solution, marks: Iterable[str]) -> str:
        calls = zip(solution.calls, marks, strict=True)
        lines = [f"  {mark}{one.api}({dict(one.arguments)})" for one, mark in calls]
        return "\n".join([*lines, f"  answer {solution.answer!r}"])

    plain = listed(reference, [""] * len(reference.calls))
    marked = listed(other, ["= " if repr(one) in same else "* " for one in other.calls])
    return f"\n{id}: {made.task.instruction}\n reference\n{plain}\n {other.label}\n{marked}"
