"""`palaestra synthesise`: make training data about a domain, from blueprints to rows."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.cli.tables import table

if TYPE_CHECKING:
    from palaestra.core.model import Model
    from palaestra.synthesis.data_synthesis import Yield

EXAMPLE = "palaestra synthesise county.toml --to data/county"
CONTEXT = 8192  # tokens of a model in this process


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "domain",
        type=Path,
        metavar="DOMAIN.toml",
        help="what the data is about (docs/synthesis.md)",
    )
    parser.add_argument(
        "--to", type=Path, required=True, metavar="FOLDER",
        help="where the files go; the same command goes on after an interruption",
    )  # fmt: skip
    parser.add_argument(
        "--model", metavar="NAME", help="writes blueprints and words of tasks (default: drawn)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.synthesis.data_synthesis import check_domain, synthesise
    from palaestra.synthesis.domain_file import read_domain

    domain = read_domain(options.domain)
    check_domain(domain, with_model=options.model is not None)
    model = _model(options.model) if options.model else None
    say = (lambda _: None) if options.json else print
    found = asyncio.run(synthesise(domain, options.to, say, model))
    if options.json:
        rows = [
            {"stage": one.stage, "made": one.made, "tried": one.tried, "rejected": one.reasons}
            for one in found
        ]
        print(json.dumps({"domain": domain.name, "stages": rows}))
    else:
        _show(found, options.to)
    return 0


def _model(name: str) -> Model:
    from palaestra.agents.direct import DirectAgent
    from palaestra.core.errors import InputError
    from palaestra.models.registry import load_model

    if name.partition("?")[0] in ("expert", "random", "null", "reader", "planner"):
        raise InputError(f"'{name}' writes no text; choose a language model with --model.")
    return load_model(name, DirectAgent(), slots=1, context=CONTEXT, progress=print)


def _show(found: Sequence[Yield], folder: Path) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    rows = [[one.stage, str(one.made), str(one.tried)] for one in found]
    console.print(table(["stage", "passed", "of"], rows))
    for one in found:
        for reason, count in one.reasons.most_common():
            console.print(f"{one.stage}: {count} rejected: {reason}", markup=False, soft_wrap=True)
    console.print(
        f"To train on them: palaestra import {folder / 'dialogues.jsonl'} --run RUN, and a stage "
        "`imitate` with from = {run = RUN, …} (docs/synthesis.md)",
        style="dim",
        soft_wrap=True,
        markup=False,
    )
