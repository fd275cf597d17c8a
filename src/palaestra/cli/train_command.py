"""`palaestra train`: from a recipe to a trained policy and a report."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.cli.interrupt import Stopped, resumable, run_until_interrupted
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.api.training import Training
    from palaestra.experiment.recipe import Recipe

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
    short = {name: getattr(options, name) for name in ("env", "algorithm", "seed")}
    if options.resume is not None:
        given = overrides or any(value is not None for value in short.values())
        if options.recipe or given or options.folder or options.dry_run:
            raise InputError(
                "--resume goes on with the run's own recipe; drop the other options, or start a "
                "new run without --resume."
            )
        return _resume(Path(options.resume), options.json)
    from palaestra.api.training import recipe_of
    from palaestra.store.run import default_root, new_run_path

    name = options.recipe or "default"
    recipe = recipe_of(name, overrides, **short)
    folder = (
        Path(options.folder) if options.folder else new_run_path(default_root(), Path(name).stem)
    )
    if options.dry_run:
        from palaestra.cli.dry_run import describe

        return describe(recipe, str(folder), as_json=options.json)
    return _begin(recipe, folder, options.json)


def _shortcuts(options: argparse.Namespace) -> list[str]:
    found = []
    if options.no_imitation:
        found.append("imitation.demonstrations=0")
    if options.control is not None:
        found.append(f'rl.control="{options.control}"')
    return found


def _begin(recipe: Recipe, folder: Path, as_json: bool) -> int:
    from palaestra.api.training import Training
    from palaestra.cli.dry_run import estimate
    from palaestra.experiment.progress import Reporter

    def about(recipe: Recipe) -> str:
        return estimate(recipe).minutes

    with Training.begin(recipe, folder, reporter=Reporter(), about=about) as training:
        return _train(training, as_json)


def _resume(folder: Path, as_json: bool) -> int:
    from palaestra.api.training import Training
    from palaestra.experiment.progress import Reporter

    with Training.resume(folder, reporter=Reporter()) as training:
        return _train(training, as_json)


def _train(training: Training, as_json: bool) -> int:
    """Train to the end, and print the report; returns the exit code."""
    from rich.console import Console

    from palaestra.evaluation import presentation, report

    again = f"palaestra train --resume {training.folder}"
    try:
        with resumable(again):
            built = run_until_interrupted(training.live())
    except Stopped:
        training.run.database.check_present()
        print(f"\nStopped; nothing is lost. Go on with: {again}", file=sys.stderr)
        return 130
    if as_json:
        print(json.dumps(report.summary(built)))
    else:
        presentation.render(built, Console())
        print(next_steps(training.recipe, training.folder))
    return 0


def next_steps(recipe: Recipe, folder: Path) -> str:
    """What to type after training, with paths as they are reached from here."""
    run, final = shlex.quote(str(folder)), shlex.quote(str(folder / "final"))
    policy = "rl" if recipe.rl.steps else "imitation" if recipe.imitation.demonstrations else "base"
    agent = shlex.quote(recipe.agent.chosen) if recipe.agent.command is None else None
    palaestra = _command()
    trial = f"{palaestra} eval --env {recipe.environment.id} --model {final}"
    if agent is not None:
        trial += f" --agent {agent} --max-tokens {recipe.agent.max_tokens}"
    return (
        "\nWhat to type next\n"
        f"  {palaestra} show {run} test/{policy}/0   # one of its tests, turn by turn\n"
        f"  {palaestra} view {run}   # all of it, in a browser\n"
        f"  {trial}   # more tasks, or other ones"
    )


def _command() -> str:
    """How palaestra is called from here, also where its environment is not active."""
    if shutil.which("palaestra"):
        return "palaestra"
    script = Path(sys.argv[0])
    if script.name == "palaestra":
        return shlex.quote(str(script))
    return f"{shlex.quote(sys.executable)} -m palaestra"
