"""`palaestra train`: from a recipe to a trained policy and a report."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.interrupt import Stopped, resumable, run_until_interrupted
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.experiment.recipe import Recipe
    from palaestra.store.run import RunFolder

EXAMPLE = "palaestra train default --set rl.steps=10 seed=2"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", help="a name of `palaestra list recipes`, or a TOML file"
    )
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", dest="overrides",
        help="override keys of the recipe",
    )  # fmt: skip
    parser.add_argument("--env", metavar="ID", help="the environment to learn in")
    parser.add_argument("--algorithm", metavar="NAME", help="one of `palaestra list algorithms`")
    parser.add_argument("--seed", type=int, metavar="N")
    parser.add_argument("--no-imitation", action="store_true", help="learn from rollouts alone")
    parser.add_argument(
        "--control", choices=("coin", "constant", "inverted"),
        help="the sceptic's arm: learn from this in place of the reward, all else equal",
    )  # fmt: skip
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that stopped")
    parser.add_argument(
        "--run", metavar="FOLDER", dest="folder", help="where to keep the run (default: runs/…)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print time, memory, what is written, and the resolved recipe; stop",
    )
    parser.add_argument("--json", action="store_true", help="print, last, one JSON object")


def run(options: argparse.Namespace) -> int:
    overrides = [*options.overrides, *_shortcuts(options)]
    if options.resume is not None:
        if options.recipe or overrides or options.folder or options.dry_run:
            raise InputError(
                "--resume goes on with the run's own recipe; drop the other options, or start a "
                "new run without --resume."
            )
        return _train(None, Path(options.resume), options.json)
    from palaestra.experiment.crowd import fitted
    from palaestra.experiment.recipe import load

    name = options.recipe or "default"
    recipe = fitted(load(name, overrides))
    from palaestra.store.run import default_root, new_run_path

    folder = (
        Path(options.folder) if options.folder else new_run_path(default_root(), Path(name).stem)
    )
    if options.dry_run:
        from palaestra.cli.dry_run import describe

        return describe(recipe, str(folder), as_json=options.json)
    return _train(recipe, folder, options.json)


def _shortcuts(options: argparse.Namespace) -> list[str]:
    found = []
    if options.env is not None:
        # a level to carry over to belongs to the environment that the recipe names
        found += [f'environment.id="{options.env}"', "environment.transfer=", "environment.turns="]
    if options.algorithm is not None:
        found.append(f'rl.algorithm="{options.algorithm}"')
    if options.seed is not None:
        found.append(f"seed={options.seed}")
    if options.no_imitation:
        found.append("imitation.demonstrations=0")
    if options.control is not None:
        found.append(f'rl.control="{options.control}"')
    return found


def _stored_recipe(run: RunFolder) -> dict[str, Any]:
    stored = run.database.get("recipe")
    if not isinstance(stored, dict) or "rl" not in stored:
        raise InputError(f"'{run.path}' is not a training run; `palaestra show` shows what it is.")
    return stored


def _train(recipe: Recipe | None, folder: Path, as_json: bool) -> int:
    """Start a run (or resume it: `recipe` is None), and print the report."""
    from rich.console import Console

    from palaestra.cli.dry_run import estimate
    from palaestra.experiment.check import check_recipe
    from palaestra.experiment.crowd import note
    from palaestra.experiment.progress import Reporter
    from palaestra.experiment.recipe import check
    from palaestra.store.run import RunFolder

    reporter = Reporter()
    if recipe is None:
        opened = RunFolder.open(folder)
        try:
            stored = _stored_recipe(opened)
            with opened.telling_versions():
                recipe = check(stored)
        except BaseException:
            opened.close()
            raise
        reporter.say(f"resuming [bold]{folder}[/bold]: {recipe.summary}")
        if of_another := opened.note_version():
            reporter.say(of_another)
    else:
        check_recipe(recipe)
        about = estimate(recipe).minutes
        settings = recipe.model_dump(mode="json")
        opened = RunFolder.create(folder, settings, durability=recipe.durability)
        reporter.say(f"[bold]{folder}[/bold]: {recipe.summary} ({about})")
    agent = recipe.agent.chosen
    crowded = note(recipe.environment.id, recipe.concurrency, "--set concurrency=", agent)
    if crowded is not None:
        reporter.say(crowded)
    with opened as run:
        from palaestra.evaluation import presentation, report
        from palaestra.experiment.run import execute, write_report

        again = f"palaestra train --resume {folder}"
        try:
            with resumable(again):
                built = run_until_interrupted(execute(recipe, run, reporter))
        except Stopped:
            run.database.check_present()
            write_report(run)
            print(f"\nStopped; nothing is lost. Go on with: {again}", file=sys.stderr)
            return 130
        if as_json:
            print(json.dumps(report.summary(built)))
        else:
            presentation.render(built, Console())
            print(next_steps(recipe, folder))
    return 0


def next_steps(recipe: Recipe, folder: Path) -> str:
    """What to type after training, with paths as they are reached from here."""
    run, final = shlex.quote(str(folder)), shlex.quote(str(folder / "final"))
    policy = "rl" if recipe.rl.steps else "imitation" if recipe.imitation.demonstrations else "base"
    agent = shlex.quote(recipe.agent.chosen) if recipe.agent.command is None else None
    trial = f"palaestra eval --env {recipe.environment.id} --model {final}"
    if agent is not None:
        trial += f" --agent {agent} --max-tokens {recipe.agent.max_tokens}"
    return (
        "\nWhat to type next\n"
        f"  palaestra show {run} test/{policy}/0   # one of its tests, turn by turn\n"
        f"  palaestra view {run}   # all of it, in a browser\n"
        f"  {trial}   # more tasks, or other ones"
    )
