"""Audit the verdicts of `apps`: right solutions pass, and wrong ones and constant ones do not.

    python scripts/apps_audit.py 5000                      # tasks in all; tables in Markdown
    python scripts/apps_audit.py 300 --only chain,branch   # of some ids
    python scripts/apps_audit.py 300 --print 200           # right solutions, to be read
    python scripts/apps_audit.py 1000 --first 4000         # a part of them

Where rules may forbid what is asked, a last table has what behaviour that ignores them passes.

For each id of `apps` (its tools do not matter): the reference; constant answers; a player that
makes 20 calls by chance; near misses; planted wrong solutions (`composing/wrong_solutions.py`); and
other right solutions found by search over the graph of APIs (`composing/right_solutions.py`). Every
wrong solution that is accepted and every right one that is rejected is printed.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from palaestra.core.task import Split, Task
from palaestra.environments.families.apps.composing.api_graph import ApiGraph
from palaestra.environments.families.apps.composing.composition import LEVELS, Composer
from palaestra.environments.families.apps.composing.forbidden import DEED, REFUSAL, REFUSED
from palaestra.environments.families.apps.composing.gate import (
    CONSTANT,
    judged,
    near_misses,
    rejection,
)
from palaestra.environments.families.apps.composing.goal import MAIN, Call
from palaestra.environments.families.apps.composing.operators import EXPERT
from palaestra.environments.families.apps.composing.right_solutions import right_solutions
from palaestra.environments.families.apps.composing.verifier import Verdict, run
from palaestra.environments.families.apps.composing.wrong_solutions import (
    Solution,
    wrong_solutions,
)
from palaestra.environments.families.apps.drawing import CHALLENGE, UNSEEN, Drawn, drawn
from palaestra.environments.families.apps.environment import COMPOSED, Apps, speed_of
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.scenarios import candidates
from palaestra.environments.families.apps.setting import core_atoms
from palaestra.environments.families.apps.world import World
from palaestra.evaluation.statistics.intervals import wilson

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
EXPERTS = 50  # of so many tasks of other ids there is one of an expert's: each takes seconds


@dataclass
class Row:
    """The counts of an id, or of a kind of goal."""

    tasks: int = 0
    solved: int = 0  # by the reference
    constant: int = 0  # tasks that a constant answer solves
    chance: int = 0  # tasks that the player by chance solves
    wrong: int = 0
    rejected: int = 0
    right: int = 0
    accepted: int = 0
    calls: list[int] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tasks", type=int, help="in all")
    parser.add_argument("--only", default="", help="ids without `apps/`, separated by commas")
    parser.add_argument("--first", type=int, default=0, help="tasks to leave out before")
    parser.add_argument("--draws", type=int, default=40, help="worlds for the gate's yield")
    parser.add_argument("--print", type=int, default=0, dest="shown", help="right solutions")
    options = parser.parse_args()
    ids = [name for name in Apps.names() if ":" not in name and speed_of(name) is None]
    unknown = sorted({*options.only.split(",")} - {"", *ids})
    if unknown:
        parser.error(f"--only: '{unknown[0]}' is unknown; choose from {', '.join(ids)}")
    ids = options.only.split(",") if options.only else ids
    by_id = {id: Row() for id in ids}
    by_goal: dict[str, Row] = {}
    ignoring = {name: list[bool]() for name in IGNORING}
    shown: list[str] = []
    counts = Counter[str]()
    others = [id for id in ids if not id.startswith(EXPERT)]
    experts = [id for id in ids if id.startswith(EXPERT)]
    for number in range(options.first + options.tasks):
        of = experts if experts and (not others or number % EXPERTS == 0) else others
        id = min(of, key=lambda one: counts[one])
        seed = counts[id]  # through all splits, and through worlds
        counts[id] += 1
        if number < options.first:
            continue
        task = Task(f"audit/{seed}", f"apps/{id}", seed)
        made, rows = Apps(id).draw(task), [by_id[id]]
        if len(made.task.goals) == 1:
            atom = made.task.goals[0].atom
            names = [atom.name, *([f"{atom.name}: {d.name}"] if (d := _deed(atom)) else [])]
            rows += [by_goal.setdefault(name, Row()) for name in names]
        audit(id, made, rows, random.Random(f"audit {number}"), shown)
        if made.task.policy:
            ignore_rules(made, ignoring)
    print(_table("id", by_id), _table("goal", by_goal), sep="\n")
    if any(ignoring.values()):
        print(_ignoring(ignoring))
    if options.draws:
        print(_yields(ids, options.draws))
    for text in random.Random(0).sample(shown, min(options.shown, len(shown))):
        print(text)


def _deed(atom: Any) -> Any:
    """Return the goal within an operator over a gap."""
    return getattr(atom, "deed", None)


def audit(id: str, made: Drawn, rows: Sequence[Row], rng: random.Random, shown: list[str]) -> None:
    """Try everything on one task, and count it in the rows."""
    with closing(made.open()) as world:
        ran, _ = made.task.reference(world)
        reference = Solution("the reference", tuple(ran.calls), ran.answer)
        for row in rows:
            row.tasks += 1
            row.calls.append(len(ran.calls))
            row.solved += passes(world, made, reference)
            row.constant += any(judged(world, made.ways, words).success for words in CONSTANT)
        lucky = passes(world, made, by_chance(world, made, rng))
        for row in rows:
            row.chance += lucky
        wrong: list[Any] = [*near_misses(world, made.task, rng)]
        wrong += wrong_solutions(world, made.task, rng)
        for one in rng.sample(wrong, min(PLANTED, len(wrong))):
            solution = one if isinstance(one, Solution) else near_miss(world, made, *one)
            accepted = passes(world, made, solution)
            if accepted:
                print(f"ACCEPTED {id} {made.task.instruction!r}: {solution}")
            for row in rows:
                row.wrong += 1
                row.rejected += not accepted
        right = list(right_solutions(world, made.task, rng))
        for solution in rng.sample(right, min(RIGHT, len(right))):
            verdict = judgement(world, made, solution)
            if not verdict.timing or verdict.policy:
                continue  # it takes too long, or breaks a rule on its way: not right
            accepted = verdict.success
            if not accepted:
                print(f"REJECTED {id} {made.task.instruction!r}: {solution}")
            for row in rows:
                row.right += 1
                row.accepted += accepted
            shown.append(_text(id, made, reference, solution))


def ignore_rules(made: Drawn, ignoring: dict[str, list[bool]]) -> None:
    """Try behaviour that ignores the rules on one of two twins, and add whether it passes."""
    (goal,) = made.task.goals
    for name, changed in IGNORING.items():
        with closing(made.open()) as world:
            ran = run(made.task.steps(0, {**goal.slots, **changed}), world, MAIN)
            ignoring[name].append(judged(world, made.ways, ran.answer).success)


def _ignoring(found: dict[str, list[bool]]) -> str:
    lines = ["| behaviour | tasks | solved |", "|---|---|---|"]
    for name, solved in found.items():
        share = wilson(sum(solved), len(solved))
        bounds = f"{share.low:.2f} to {share.high:.2f}"
        lines.append(f"| {name} | {len(solved)} | {share.mean:.2f} ({bounds}) |")
    return "\n".join(lines) + "\n"


def passes(world: World, made: Drawn, solution: Solution) -> bool:
    """Return whether a solution is judged a success."""
    return judgement(world, made, solution).success


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
    """Return calls by chance, mostly of APIs that the task needs, with values of their types."""
    graph, pools = ApiGraph(world.suite), _values(world)
    apis = [api for api in world.suite.apis.values() if api.name != "login"]
    apis += [world.suite.apis[name] for name in made.needed] * 4
    calls = []
    for _ in range(CHANCE):
        api, given = rng.choice(apis), {}
        for name, schema in api.parameters["properties"].items():
            if name in api.parameters.get("required", ()) or rng.random() < 0.3:
                pool = schema.get("enum") or pools.get(graph.argument(api, name)) or ["amber", 1]
                given[name] = rng.choice(pool)
        calls.append(Call(api.full_name, given))
    return Solution("by chance", tuple(calls), rng.choice(["yes", 0, 1, 2, 3, "555-0134"]))


def _values(world: World) -> dict[str, list[Any]]:
    """Return the values of the world by type."""
    graph, found = ApiGraph(world.suite), dict[str, list[Any]]()
    for table in world.state.columns:
        rows = world.state.rows(table)
        for name, kind in graph.fields(table).items():
            found.setdefault(kind, []).extend(r[name] for r in rows if r[name] is not None)
    return found


def _table(head: str, rows: dict[str, Row]) -> str:
    lines = [
        f"| {head} | tasks | calls | reference | constant | chance | wrong planted | rejected | "
        "other right | accepted |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    total = Row()
    for row in rows.values():
        for name in ("tasks", "solved", "constant", "chance", "wrong", "rejected"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
        total.right, total.accepted = total.right + row.right, total.accepted + row.accepted
        total.calls += row.calls
    for name, row in [*rows.items(), *([("all", total)] if head == "id" else [])]:
        if not row.tasks:
            continue
        calls = f"{min(row.calls)}-{max(row.calls)}"
        lines.append(
            f"| {name} | {row.tasks} | {calls} | {_share(row.solved, row.tasks)} | "
            f"{row.constant} | {row.chance} | {row.wrong} | {_share(row.rejected, row.wrong)} | "
            f"{row.right} | {_share(row.accepted, row.right)} |"
        )
    return "\n".join(lines) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "-"


def _yields(ids: Sequence[str], worlds: int) -> str:
    """Return how many draws pass the gate, and why others do not, by id."""
    lines = ["| id | draws | pass the gate | reasons of the others |", "|---|---|---|---|"]
    for id in ids:
        level, _, kind = id.partition("-")
        if level == EXPERT or level not in COMPOSED:
            continue  # drawn goal by goal, or in other apps
        reasons = Counter(_reasons(level, kind, worlds))
        draws, passed = reasons.total(), reasons.pop("", 0)
        most = "; ".join(f"{reason}: {number}" for reason, number in reasons.most_common(4))
        lines.append(f"| {id} | {draws} | {_share(passed, draws)} | {most} |")
    return "\n".join(lines) + "\n"


def _reasons(level: str, kind: str, worlds: int) -> Iterator[str]:
    """Yield why draws do not pass the gate; nothing for one that does."""
    for number in range(worlds):
        seed = len(Split) * number
        if level not in LEVELS:
            yield from (_short(reason) for reason in candidates(level, kind, seed, 5))
            continue
        made = drawn(level, kind, seed)
        atoms = [a for a in core_atoms(made.suite) if (UNSEEN in a.apps) == (kind == CHALLENGE)]
        composer = Composer(atoms)
        rng = random.Random(number)
        with closing(World(made.suite, made.template, START)) as world:
            for _ in range(5):
                task = composer.draw(world, LEVELS[level], rng)
                yield _short("no values" if task is None else rejection(world, task, rng))


def _short(reason: str | None) -> str:
    return (reason or "").partition(": {")[0]


def _text(id: str, made: Drawn, reference: Solution, other: Solution) -> str:
    def listed(solution: Solution) -> str:
        calls = [f"  {one.api}({dict(one.arguments)})" for one in solution.calls]
        return "\n".join([*calls, f"  answer {solution.answer!r}"])

    same = {repr(one) for one in reference.calls}
    calls = [
        f"  {'=' if repr(one) in same else '*'} {one.api}({dict(one.arguments)})"
        for one in other.calls
    ]
    body = "\n".join([*calls, f"  answer {other.answer!r}"])
    return (
        f"\n{id}: {made.task.instruction}\n reference\n{listed(reference)}\n {other.label}\n{body}"
    )


if __name__ == "__main__":
    main()
