"""Shows each team template with simulated members against a formula; writes docs/results/teams.md.

    python scripts/templates_study.py [--tasks 4000] [--only TEMPLATE] [--folder FOLDER] [--write]

Members are the model `reader`, whose probability of being right depends on what it reads. A line
holds if the formula's value is in the 95 % interval of the run. `--write` puts the table into the
page between its markers.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from results_page import write_table
from template_case import Case, Change, Measure, characters, replies, rounds, solved
from templates_on_cases import on_cases

import palaestra as pa
from palaestra.api.results import Results
from palaestra.core.episode import Episode
from palaestra.evaluation.statistics.intervals import wilson

# ── programs ────────────────────────────────────────────────────────────────────

WRONG = 4  # wrong programs of each problem, all different (environments/families/programs)


def tested(p: float, r: float, rounds: int) -> float:
    """Return how often a program is right after tests that were written once, before it.

    Args:
        p: that a program is right; else it is one of `WRONG`, each as often.
        r: that the tests are right; else they are those that a wrong program passes, and no other.
        rounds: in each of which the program is accepted or written anew; the last one is taken.
    """
    passing = (1 - p) / WRONG
    good = sum(p * (1 - p) ** k for k in range(rounds))
    return r * good + (1 - r) * p * (1 - passing) ** (rounds - 1)


def tested_anew(p: float, r: float, shared: float, rounds: int) -> float:
    """Return the same with tests that are written again for each program.

    With probability `shared` the tests of a wrong program have its mistake, so that it passes.
    """
    accepts_wrong = shared + (1 - shared) * (1 - r) / WRONG
    again = p * (1 - r) + (1 - p) * (1 - accepts_wrong)
    return p * r * sum(again**k for k in range(rounds - 1)) + p * again ** (rounds - 1)


def times(n: int) -> Change:
    """Change how often the stages are repeated."""
    return lambda text: re.sub(r"times = \d+", f"times = {n}", text)


def anew(seen: bool) -> Change:
    """Change when the tests are written: after each program, which the tester has seen or not."""

    def change(text: str) -> str:
        head, first, second, *rest = text.split("[[stage]]\n")
        text = "[[stage]]\n".join([head, second, first, *rest]).replace("back = 1", "back = 2")
        edge = 'tester = ["programmer"]\n' if seen else ""
        return text.replace("[edges]\n", f"[edges]\n{edge}")

    return change


def programs() -> Iterable[Case]:
    """Yield programmers with a blind tester (Huang et al. 2023), and with one who is not."""
    p, r, s = 0.6, 0.9, 0.6
    author = {"programmer": f"reader?part=def&right={p}"}
    blind = author | {"tester": f"reader?part=assert&right={r}"}
    seeing = author | {"tester": f"reader?part=assert&right={r}&share={s}"}
    where, test = "programs/functions", "passes hidden tests"
    yield Case("one programmer", where, [(test, solved, p)], f"reader?right={p}")
    for n in (1, 2, 3, 5):
        expected = [(test, solved, tested(p, r, n))]
        name = f"programmers, {n} round{'s'[: n - 1]}"
        yield Case(name, where, expected, "null", "programmers", blind, times(n))
    for label, roles, shared in (("blind", blind, 0.0), ("seen the program", seeing, s)):
        expected = [(test, solved, tested_anew(p, r, shared, 5))]
        name = f"programmers, tests anew, {label}"
        yield Case(name, where, expected, "null", "programmers", roles, anew(shared > 0))
    yield from modes(where, test)


def modes(where: str, test: str) -> Iterable[Case]:
    """Yield the modes of Corex (Sun et al. 2023) beside one agent and a majority."""
    p, found = 0.6, 0.9
    model = f"reader?right={p}"
    judge = {"judge": f"{model}&found={found}"}
    either = 1 - (1 - p) ** 2
    yield Case(
        "majority", where, [(test, solved, plurality(p))], model, "majority"
    )  # fmt: skip
    yield Case(
        "debate", where, [(test, solved, either * found + (1 - either) * p)], model, "debate", judge
    )
    again = p * 0.1 + (1 - p) * 0.8
    reviewed = p * 0.9 * (1 + again) + p * again**2
    reviewer = {"reviewer": "reader?recall=0.8&false=0.1"}
    yield Case("review", where, [(test, solved, reviewed)], model, "review", reviewer)
    any_of = 1 - (1 - p) ** 3
    selector = {"selector": f"{model}&found={found}"}
    expected = any_of * found + (1 - any_of) * p
    yield Case("select", where, [(test, solved, expected)], model, "select", selector)
    honesty = 0.9
    retriever = {"retriever": f"reader?honesty={honesty}"}
    expected = retrieved(p, honesty)
    yield Case("retrieve", where, [(test, solved, expected)], model, "retrieve", retriever)


def three_programs(p: float) -> Iterable[tuple[float, tuple[int, ...]]]:
    """Yield how probable each three proposals are; 0 is the right program, others are wrong."""
    chances = {0: p, **dict.fromkeys(range(1, WRONG + 1), (1 - p) / WRONG)}
    for three in product(chances, repeat=3):
        yield math.prod(chances[one] for one in three), three


def plurality(p: float) -> float:
    """Return how often the most frequent of three programs, of equals the first, is right."""
    found = 0.0
    for chance, three in three_programs(p):
        most = max(three, key=lambda one: (three.count(one), -three.index(one)))
        found += chance * (most == 0)
    return found


def retrieved(p: float, honesty: float) -> float:
    """Return how often one who ranks three programs has the right one first.

    It judges each rightly with that probability, and ranks those that it thinks right in their
    order before the others in a random one. Equal programs need no ranking.
    """
    found = 0.0
    for chance, three in three_programs(p):
        different = list(dict.fromkeys(three))
        if 0 not in different:
            continue
        others, before = len(different) - 1, different.index(0)
        best = honesty * honesty**before + (1 - honesty) * honesty**others / (others + 1)
        found += chance * (best if others else 1.0)
    return found


# ── courtroom and software team ─────────────────────────────────────────────────


def turns_of(member: str) -> Measure:
    """Return how often a member replied."""

    def measure(episode: Episode) -> float:
        return float(sum(step.before.turn == member for step in episode.steps))

    return measure


def rights() -> Iterable[Case]:
    """Yield teams whose members have rights (Talebirad and Nadiri 2023) and end in a budget."""
    honesty, right_proposal = 0.8, 0.8**4  # of four parts
    model, where = f"reader?right=0.8&honesty={honesty}", "cases/table"
    h = honesty  # a voter who thinks both or neither right votes for the first, or for any
    votes = (h * h + 1.5 * h * (1 - h), h * h + 0.5 * h * (1 - h))  # right ones, by its number
    juries = [v**3 + 3 * v * v * (1 - v) for v in votes]
    differ = 2 * right_proposal * (1 - right_proposal)
    expected = [
        ("right", solved, right_proposal**2 + differ * statistics.mean(juries)),
        ("replies (at most 13)", replies, None),
    ]
    yield Case("courtroom", where, expected, model, "courtroom")
    stuck = {"developer": "reader?part=def&right=0", "tester": "reader?part=assert"}
    where = "programs/functions"
    watched = [("rounds until halted", turns_of("executor"), None)]
    yield Case("software, stuck", where, watched, "reader", "software", stuck)
    watched = [("rounds of at most 8", turns_of("executor"), 8.0)]
    yield Case(
        "software, stuck, no supervisor", where, watched, "reader", "software", stuck, unwatched
    )


def unwatched(text: str) -> str:
    """Take the supervisor out of the template."""
    return re.sub(r"\[(members\.)?supervisor\]\n(?:(?!\[|\n).+\n)+\n?", "", text)


# ── translation ─────────────────────────────────────────────────────────────────


def scores(episode: Episode) -> list[float]:
    """Return the chrF scores of an episode's translations, from 0 to 100."""
    infos = (step.transition.info for step in episode.steps)
    return [float(info["chrf"]) for info in infos if "chrf" in info]


def first(episode: Episode) -> float:
    """Return the score of the first translation."""
    return scores(episode)[0]


def last(episode: Episode) -> float:
    """Return the score of the last translation."""
    return scores(episode)[-1]


def at_once(episode: Episode) -> float:
    """Return whether the first translation passed the gate."""
    return float(len(scores(episode)) == 1 and episode.outcome.solved)


def translators() -> Iterable[Case]:
    """Yield six translators (Li et al. 2025) whose result a score gates, beside one."""
    d, p, recall, sees, guesses, tries = 0.3, 0.5, 0.8, 0.95, 0.3, 4

    def expected(chances: Sequence[float]) -> list[tuple[str, Measure, float | None]]:
        return [
            ("passes at once", at_once, chances[0]), ("passes in 4 rounds", solved, chances[1]),
            ("chrF, first", first, None), ("chrF, last", last, None),
        ]  # fmt: skip

    alone = expected((p, 1 - (1 - p) ** tries))
    yield Case("one translator", "translation/german", alone, f"reader?right={p}")
    said = 1 - (1 - d) * (1 - p) * (1 - recall * p)  # the right one, in one round of the gate
    unsolved, known, chances = 1.0, 0.0, []
    for _ in range(tries):  # `known`: unsolved, and the right translation was said before
        known += (unsolved - known) * said
        unsolved, known = (
            known * (1 - sees) + (unsolved - known) * (1 - guesses),
            known * (1 - sees),
        )
        chances.append(1 - unsolved)
    roles = {
        "drafter": f"reader?right={d}",
        "refiner": f"reader?right={p}",
        "evaluator": f"reader?recall={recall}",
        "scorer": f"reader?right={guesses}&found={sees}",
    }
    measured = expected((chances[0], chances[-1]))
    # context and knowledge know nothing here: they pass
    yield Case("translators", "translation/german", measured, "reader", "translators", roles)


# ── a stage ───────────────────────────────────────────────────────────────────────


def legal(part: str) -> Measure:
    """Return whether the engine had nothing against a part of the first plan."""

    def measure(episode: Episode) -> float:
        plans = (step.transition.info for step in episode.steps)
        return float(part not in next(info["illegal"] for info in plans if "illegal" in info))

    return measure


def crew() -> Iterable[Case]:
    """Yield a crew (Xu et al. 2025) with one to three rounds of review, beside one agent."""
    p, recall, corrects, q, guesses, sees = 0.4, 0.8, 0.5, 0.5, 0.3, 0.95
    where, marks, shots = "stage/scene", legal("marks"), legal("shots")
    alone = f"reader?right.marks={p}&right.shots={q}"
    yield Case("one sets up a scene", where, [("marks", marks, p), ("shots", shots, q)], alone)
    either = 1 - (1 - q) ** 2
    for n in (1, 2, 3):
        said = 0.0  # that the right marks were said, by the writer or by the actor
        for _ in range(n):
            said = p + (1 - p) * recall * (corrects + (1 - corrects) * said)
        expected = [
            (what, measure, found * sees + (1 - found) * guesses)
            for what, measure, found in (("marks", marks, said), ("shots", shots, either))
        ]
        roles = {
            "writer": f"reader?part=marks&right={p}",
            "actor": f"reader?part=marks&right={corrects}&recall={recall}",
            **dict.fromkeys(("left", "right"), f"reader?part=shots&right={q}"),
            "director": f"reader?right={guesses}&found={sees}",
        }
        name = f"crew, {n} review{'s'[: n - 1]}"
        yield Case(name, where, expected, "null", "crew", roles, times(n))


def cases(folder: Path) -> Iterable[Case]:
    """Yield all cases."""
    yield from programs()
    yield from rights()
    yield from crew()
    yield from translators()
    yield from on_cases(folder)


def lines(case: Case, tasks: int, folder: Path) -> Iterable[str]:
    """Run a case, or read its run from the folder; yield its rows of the table."""
    run = folder / f"run-{re.sub(r'[^a-z0-9]+', '-', case.name.lower())}"
    team = {"team": str(case.file(folder)), "roles": case.roles} if case.team else {}
    results = (
        Results.read(run)
        if run.exists()
        else pa.evaluate(
            case.environment,
            model=case.model,
            n=tasks,
            turns=60,
            run=run,
            workers=0,
            progress=False,
            **team,  # type: ignore[arg-type]
        )
    )
    if not results.complete or results.excluded:
        raise SystemExit(f"{run} is not complete, or has faults; delete it and start again")
    episodes = results.episodes
    costs = (statistics.mean(map(cost, episodes)) for cost in (replies, rounds, characters))
    cost = " | ".join(f"{one:.{digits}f}" for one, digits in zip(costs, (2, 2, 0), strict=True))
    for what, measure, expected in case.expected:
        values = [measure(episode) for episode in episodes]
        low, high = interval(values)
        formula, verdict = "", ""
        if expected is not None:
            formula = f"{expected:.3f}"
            verdict = "holds" if low <= expected <= high else "outside"
        yield (
            f"| {case.name} | {what} | {formula} | {statistics.mean(values):.3f} "
            f"({low:.3f} to {high:.3f}) | {cost} | {verdict} |"
        )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean: Wilson's for yes or no, else the normal one."""
    if set(values) <= {0.0, 1.0}:
        found = wilson(int(sum(values)), len(values))
        return found.low, found.high
    if len(set(values)) == 1:
        return values[0], values[0]
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values) - half, statistics.mean(values) + half


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--only", default="", help="cases whose names begin like this")
    parser.add_argument(
        "--folder", type=Path, help="of team files and runs; runs in it are not repeated"
    )
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    rows = [
        "| team | measure | formula | run, 95 % | replies | one after the other | characters | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in cases(folder):
            if case.name.startswith(options.only):
                for row in lines(case, options.tasks, folder):
                    rows.append(row)
                    print(row, flush=True)
    if options.write:
        write_table("teams.md", "templates", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
