"""`palaestra list`: list environments, models, agents and other parts by kind."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from palaestra.core.errors import InputError, UnknownName

EXAMPLE = "palaestra list environments"
WIDE = 160  # characters of a screen with room for all columns
NARROW = {"licence", "source", "tasks", "players", "can"}
"""Columns of environment families that a narrower screen leaves out; --json has them."""
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help=", ".join([*KINDS, *LEARNING]))
    parser.add_argument(
        "of", metavar="FAMILY", nargs="?", help="with environments: the ids of one family"
    )
    parser.add_argument(
        "--all", action="store_true", help="also parts that no recipe can use, and what they lack"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(options: argparse.Namespace) -> int:
    if options.kind not in (kinds := [*KINDS, *LEARNING]):
        raise UnknownName("kind of thing to list", options.kind, kinds)
    if options.of and options.kind != "environments":
        raise InputError(
            f"'{options.of}' has no effect: only environments have families; leave it out."
        )
    if options.all and options.kind not in LEARNING:
        raise InputError(
            f"--all has no effect: all {options.kind} are listed anyway; leave it out."
        )
    if options.kind in LEARNING:
        rows = LEARNING[options.kind](options.all)
    else:
        rows = _environments(options.of) if options.of else KINDS[options.kind]()
    if options.json:
        print(json.dumps(rows))
    elif options.kind == "environments" and not options.of:
        _render(_families())
        print("palaestra list environments FAMILY shows the ids of one.")
    elif not rows:
        print(f"There are no {options.kind}.")
    else:
        _render(rows)
        hides = options.kind in LEARNING and len(LEARNING[options.kind](True)) > len(rows)
        if hides and not options.all:
            print(f"palaestra list {options.kind} --all also shows what no recipe can use yet.")
    return 0


def _environments(family: str | None = None) -> list[Row]:
    from palaestra.environments.environment_listing import entries

    return [{"name": entry.id, **asdict(entry)} for entry in entries(family)]


def _families() -> list[Row]:
    """Return one row per family."""
    rows: dict[str, Row] = {}
    for entry in _environments():
        row = rows.setdefault(
            entry["family"],
            {
                "family": entry["family"],
                "ids": 0,
                "installed": entry["installed"],
                "players": "1",
                "can": set(),
                "tasks": _counts(entry["tasks"]),
                "licence": entry["licence"],
                "summary": entry["summary"],
                "source": entry["source"],
            },
        )
        row["ids"] += entry["installed"]
        row["can"] |= set(entry["capabilities"])
        if len(entry["players"]) > 1:
            row["players"] = "1+"
    return [{**row, "can": sorted(row["can"])} for row in rows.values()]


def _counts(tasks: dict[str, int | None]) -> str:
    """Return the counts of train, validation and test; "∞" for unlimited tasks."""
    return "/".join("∞" if count is None else str(count) for count in tasks.values())


def _models() -> list[Row]:
    from palaestra.models.registry import models

    return [{"name": n, "source": m.source, "summary": m.summary} for n, m in models().items()]


def _agents() -> list[Row]:
    from palaestra.agents.agent_listing import entries

    return [agent._asdict() for agent in entries()]


def _teams() -> list[Row]:
    """Return the teams that come with palaestra; the head of a file has summary and source."""
    from palaestra.environments.teams.layouts import LAYOUTS, SOURCE
    from palaestra.environments.teams.team_file import TEMPLATES, load, templates

    rows = []
    for name in templates():
        text = (TEMPLATES / f"{name}.toml").read_text(encoding="utf-8")
        summary, source = (line.removeprefix("# ") for line in text.splitlines()[:2])
        team = load(name)
        tables = {
            "orchestrator": team.orchestrator,
            "network": team.network,
            "routing": team.routing,
        }
        table = next((key for key, value in tables.items() if value is not None), "")
        stages = " → ".join(stage.do for stage in team.stage)
        rows.append(
            {
                "name": name,
                "members": ", ".join(team.members),
                "protocol": stages or table,
                "source": source,
                "summary": summary,
            }
        )
    for layout, summary in LAYOUTS.items():
        stages = " → ".join(stage.do for stage in load(f"{layout}:2").stage)
        rows.append(
            {
                "name": f"{layout}:N",
                "members": "robot1, …",
                "stages": stages,
                "source": SOURCE,
                "summary": summary,
            }
        )
    return rows


def _algorithms(every: bool) -> list[Row]:
    """Return the algorithms that a recipe can name; or all, with what the others lack."""
    from palaestra.learning.methods.algorithms import ALGORITHMS, Method
    from palaestra.training.usable_parts import lack

    rows = []
    for name, algorithm in ALGORITHMS.items():
        method = Method(algorithm)
        rows.append(
            {
                "name": name,
                "needs": sorted(method.needs),
                "summary": algorithm.summary,
                "source": algorithm.source,
                "status": method.status,
                "parts": _parts(algorithm.credit, algorithm.loss, algorithm.filter),
                "lacks": lack(method.needs) or "",
            }
        )
    return _reached(rows, every)


def _parts(credit: str, loss: str, kept: str) -> str:
    return f"{credit}, {loss}" + (f", {kept}" if kept != "all" else "")


def _components(every: bool, *kinds: str) -> list[Row]:
    from palaestra.learning.methods.component import Kind, components
    from palaestra.training.usable_parts import lack

    rows = [
        {
            "name": part.name,
            **({"kind": kind} if len(kinds) > 1 else {}),
            "needs": sorted(part.needs),
            "summary": part.summary,
            "source": part.source,
            "status": part.status,
            "options": {name: _json(value) for name, value in part.options.items()},
            "lacks": lack(part.needs) or "",
        }
        for kind in kinds
        for part in components(Kind(kind)).values()
    ]
    return _reached(rows, every)


def _reached(rows: list[Row], every: bool) -> list[Row]:
    """Return all rows; or those that lack nothing, without the column 'lacks'."""
    if every:
        return rows
    return [{k: v for k, v in row.items() if k != "lacks"} for row in rows if not row["lacks"]]


def _json(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _recipes() -> list[Row]:
    from palaestra.cli.resources import estimate
    from palaestra.core.errors import InputError
    from palaestra.training.recipe import load, recipe_names

    rows = []
    for name in recipe_names():
        recipe = load(name)
        try:
            time = estimate(recipe).minutes
        except InputError:  # its environment is not installed
            time = ""
        rows.append({"name": name, "source": "palaestra", "time": time, "summary": recipe.summary})
    return rows


def _stages() -> list[Row]:
    """Return what a stage of a recipe can do, with its keys."""
    from palaestra.training.recipe import keys
    from palaestra.training.stage_sections import STAGES

    return [
        {
            "name": name,
            "reads": part.reads,
            "writes": part.writes,
            "summary": (part.__doc__ or "").partition("\n")[0],
            "source": part.paper,
            "keys": [key for key in keys(part) if key != "do"],
        }
        for name, part in STAGES.items()
    ]


def _runs() -> list[Row]:
    from palaestra.core.errors import PalaestraError
    from palaestra.store.run_folder import RunFolder, default_root, list_runs

    rows: list[Row] = []
    for record in list_runs(default_root()):
        try:
            with RunFolder.read(record.path) as opened:
                summary = (opened.database.get("recipe") or {}).get("summary", "")
        except PalaestraError as error:  # another format, or damaged: still list it
            summary = str(error)
        rows.append(
            {
                "name": record.name,
                "source": str(record.path),
                "created": record.created.isoformat(timespec="seconds"),
                "summary": summary,
            }
        )
    return rows


LEARNING: dict[str, Callable[[bool], list[Row]]] = {
    "algorithms": _algorithms,
    "credit": lambda every: _components(every, "credit"),
    "rewards": lambda every: _components(every, "reward"),
    "losses": lambda every: _components(every, "loss", "correction", "preference"),
    "curricula": lambda every: _components(every, "curriculum", "filter", "examples"),
}
"""Kinds with parts that a training run cannot use."""

KINDS: dict[str, Callable[[], list[Row]]] = {
    "environments": _environments,
    "models": _models,
    "agents": _agents,
    "teams": _teams,
    "recipes": _recipes,
    "stages": _stages,
    "runs": _runs,
}


def _render(rows: list[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    # --json has what the name implies: an id's family, a run's path
    hidden = {"options", "keys"} | ({"source"} if "created" in rows[0] else set())
    if "status" in rows[0]:  # parts of the learning library: their tables are in the docs
        hidden |= {"source"} | ({"needs"} if "lacks" in rows[0] else set())
    if "id" in rows[0]:  # of one family
        hidden |= {"id", "family", "extra", "source", "licence", "summary", "installed", "missing"}
    if "ids" in rows[0] and console.width < WIDE:
        hidden |= NARROW
    columns = [column for column in rows[0] if column not in hidden]
    table = Table(*columns, box=box.SIMPLE_HEAD, header_style="bold")
    table.columns[0].no_wrap = True
    table.columns[0].overflow = "fold"
    if "status" in columns:
        table.columns[columns.index("status")].no_wrap = True
    for row in rows:
        table.add_row(*(Text(_word(row[column])) for column in columns))
    console.print(table)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return _counts(value)
    return ", ".join(value) if isinstance(value, (list, tuple)) else str(value)
