"""Team templates on the environments `cases/…`, with the formula of each (`templates_study.py`)."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from pathlib import Path

from template_case import Case, Change, right, share

from palaestra.core.knowledge_file import BUNDLED


def on_cases(folder: Path) -> Iterable[Case]:
    """Yield all cases on these environments; their knowledge files are written into the folder."""
    yield from care()
    yield from triage(folder)
    yield from extraction(folder)
    yield from partners()
    yield from limitations()
    yield from critics()


def care() -> Iterable[Case]:
    """Yield a reply that checkers override (Mukherjee et al. 2024)."""
    p, recall, false, own = 0.7, 0.9, 0.05, 0.95
    redone = own + (1 - own) * p
    checked = p * (1 - false + false * redone) + (1 - p) * recall * redone
    safe = right("dose", "together", "urgency")
    model = f"reader?right={p}"
    yield Case(
        "one reply", "cases/care",
        [("safe", safe, p**3), ("visit booked", right("visit"), p)], model,
    )  # fmt: skip
    checker = f"reader?recall={recall}&false={false}&right={own}&part="
    points = {"dosage": "dose", "interactions": "together", "emergencies": "urgency"}
    yield Case(
        "checkers", "cases/care",
        [("safe", safe, checked**3), ("visit booked", right("visit"), checked)],
        f"{model}&found=1", "checkers",
        {member: checker + part for member, part in (points | {"checklist": "visit"}).items()},
    )  # fmt: skip


def common_diseases(folder: Path) -> Path:
    """Write a knowledge file of 8 of the 12 diseases, two of each department; return its path."""
    head, *entries = (BUNDLED / "diseases.toml").read_text().split("[[entry]]\n")
    rare = ("atrial", "parkinson", "irritable", "asthma")
    common = [entry for entry in entries if not any(word in entry for word in rare)]
    partial = folder / "common.toml"
    partial.write_text("[[entry]]\n".join([head, *common]))
    return partial


def triage(folder: Path) -> Iterable[Case]:
    """Yield triage (Zuo et al. 2024) with part of the diseases in the file, and with all."""
    partial = common_diseases(folder)
    roles = dict.fromkeys(
        ("cardiology", "neurology", "gastroenterology", "pulmonology"),
        "reader?part=diagnosis&right=0.2&with.department=0.9",
    ) | {
        "practitioner": "reader?part=department&right=0.5&found=0.95",
        "registrar": "reader?right=0&found=1",
    }
    for name, known in (("a file of 8 of 12 diseases", 8 / 12), ("4 added by a person", 1.0)):
        routed = known * 0.95 + (1 - known) * 0.5
        expected = [
            ("department", right("department"), routed),
            ("diagnosis", right("diagnosis"), routed * 0.9 + (1 - routed) * 0.2),
        ]
        change = (
            str if known == 1 else lambda text: text.replace("file=diseases", f"file={partial}")
        )
        yield Case(f"triage, {name}", "cases/triage", expected, "null", "triage", roles, change)


def extraction(folder: Path) -> Iterable[Case]:
    """Yield documents that are written down (Zuo et al. 2024), with and without a curator.

    The curator's file has 8 of 12 diseases, so it refuses wrong departments of those.
    """
    partial = common_diseases(folder)
    department, sign, rounds = 0.6, 0.8, 3
    where = "cases/record"
    model = f"reader?right={sign}&right.department={department}&right.diagnosis=1"
    signs = ("signs", right("sign-1"), sign)
    yield Case(
        "one extractor", where, [("department", right("department"), department), signs], model
    )
    known = 8 / 12
    checked = known * (1 - (1 - department) ** rounds) + (1 - known) * department
    yield Case(
        "extraction, a file of 8 of 12 diseases",
        where,
        [("department", right("department"), checked), signs],
        "null",
        "extraction",
        {"extractor": model},
        lambda text: text.replace("file=diseases", f"file={partial}"),
    )


def partners() -> Iterable[Case]:
    """Yield a choice of partners (Li et al. 2025) beside one agent and a debate."""
    p, found = 0.4, 0.7
    best, where, model = right("partner"), "cases/partner", f"reader?right={p}"
    yield Case("one chooses a partner", where, [("match", best, p)], model)
    either = 1 - (1 - p) ** 2
    expected = either * found + (1 - either) * p
    judge = {"judge": f"{model}&found={found}"}
    yield Case("debate on a partner", where, [("match", best, expected)], model, "debate", judge)
    plan, knows, guesses, merges = 0.9, 0.9, 0.3, 0.9
    all_three = plan * knows**3 + (1 - plan) * guesses**3
    roles = {
        member: f"reader?part=best-{n}&right={guesses}&with.kinds={knows}"
        for n, member in enumerate(("first", "second", "third"), 1)
    } | {
        "planner": f"reader?part=kinds&right={plan}",
        "supervisor": f"{model}&with.best-1+best-2+best-3={merges}",
    }
    expected = all_three * merges + (1 - all_three) * p
    yield Case("partners", where, [("match", best, expected)], "null", "partners", roles)


def limitations() -> Iterable[Case]:
    """Yield limitations of papers (Al Azher et al. 2025) by one agent and by six."""
    p, expert, judges, consolidates = 0.4, 0.8, 0.9, 0.95
    where = "cases/paper"
    yield Case("one finds limitations", where, [("coverage", share, p)], f"reader?right={p}")
    said = expert + (1 - expert) * p  # by the expert, or else by the judge
    read = [said * consolidates + (1 - said) * p] * 4 + [p * consolidates + (1 - p) * p]
    parts = {"extractor": "data", "analyst": "method", "reviewer": "evaluation"}
    parts |= {"citation": "citation"}
    roles = {member: f"reader?part={part}&right={expert}" for member, part in parts.items()}
    roles |= {
        "judge": f"reader?right={p}&found={judges}",
        "master": f"reader?right={p}&found={consolidates}",
    }
    expected = [("coverage", share, statistics.mean(read))]
    yield Case("limitations", where, expected, "null", "limitations", roles)


def critics() -> Iterable[Case]:
    """Yield which critic fixes which mistake (Fatemi and Hu 2024), and for how many replies."""
    wrong, recall, false = {"cells": 0.2, "number": 0.4}, 0.8, 0.1
    author = "reader?" + "&".join(f"right.{part}={1 - q}" for part, q in wrong.items())
    points = {"evidence": "cells", "calculation": "number"}
    for chosen in ((), ("evidence",), ("calculation",), ("evidence", "calculation")):
        expected = []
        for part, q in wrong.items():
            p = 1 - q
            looked = part in {points[critic] for critic in chosen}
            after = p * (1 - false + false * p) + q * recall * p
            expected.append((part, right(part), after if looked else p))
        model = f"reader?recall={recall}&false={false}&part="
        roles = {"author": author} | {critic: model + points[critic] for critic in chosen}
        name = f"critics: {' and '.join(chosen) or 'none'}"
        if not chosen:
            yield Case(name, "cases/table", expected, author)
            continue
        yield Case(name, "cases/table", expected, "null", "critics", roles, only(*chosen))


def only(*chosen: str) -> Change:
    """Leave these critics in the template."""

    def change(text: str) -> str:
        for critic in {"evidence", "calculation"} - set(chosen):
            text = re.sub(rf"\[members\.{critic}\]\n(?:(?!\[).+\n)+", "", text)
        return re.sub(r'who = \["evidence".*\]', f"who = {list(chosen)}", text)

    return change
