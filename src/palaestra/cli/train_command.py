"""`palaestra train`: from a recipe to a trained policy and a report."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.cli import cluster_options
from palaestra.cli.cluster_options import on_of
from palaestra.cli.interrupt import (
    TAKE_OVER,
    Stopped,
    called,
    check_take_over,
    resumable,
    resuming,
    run_until_interrupted,
    unbegun,
)
from palaestra.core.errors import InputError
from palaestra.runtime.machine import launched_rank

if TYPE_CHECKING:
    from palaestra.api.train_run import Training
    from palaestra.training.ranks import Team
    from palaestra.training.recipe import Recipe

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
    parser.add_argument(
        "--log", action="append", default=[], metavar="TRACKER",
        help="also send metrics to tensorboard, wandb, mlflow or trackio (repeatable)",
    )  # fmt: skip
    parser.add_argument("--no-imitation", action="store_true", help="learn from rollouts only")
    parser.add_argument(
        "--control", choices=("coin", "constant", "inverted"),
        help="control experiment: learn from this instead of the true reward",
    )  # fmt: skip
    parser.add_argument("--resume", metavar="RUN", help="resume a run that stopped")
    parser.add_argument("--take-over", action="store_true", help=TAKE_OVER)
    parser.add_argument(
        "--run", metavar="FOLDER", dest="folder", help="where to store the run (default: runs/…)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print estimates of time, memory and disk, and the resolved recipe; then stop",
    )
    cluster_options.add_to(parser)
    parser.add_argument(
        "--detach", action="store_true",
        help="leave the run to the cluster of --on as a Ray job, and end",
    )  # fmt: skip
    parser.add_argument(
        "--metrics", metavar="[HOST:]PORT",
        help="serve figures of the run as OpenMetrics at /metrics meanwhile (HOST: 127.0.0.1)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(options: argparse.Namespace) -> int:
    launched = launched_rank()
    with unbegun():
        if launched is None:
            return _run(options)
        if options.on is not None:
            raise InputError(
                f"--on {options.on} and torchrun are not built to work together; drop one of them."
            )
        from palaestra.training.ranks import follow_launched, lead_launched

        if launched.rank:
            return follow_launched(launched)
        return lead_launched(launched, partial(_run, options))


def _run(options: argparse.Namespace, team: Team | None = None) -> int:
    overrides = [*options.overrides, *_shortcuts(options)]
    short = {name: getattr(options, name) for name in ("env", "algorithm", "seed")}
    if options.resume is not None:
        given = overrides or any(value is not None for value in short.values())
        if options.recipe or given or options.folder or options.dry_run:
            raise InputError(
                "--resume uses the run's own recipe; drop the other options, or start a new run "
                "without --resume."
            )
        if options.detach:
            words = ["--resume", str(Path(options.resume).absolute())]
            words += ["--take-over"] if options.take_over else []
            return _detach(options, Path(options.resume), words, {})
        return _resume(options, team)
    check_take_over(options)
    from palaestra.api.train_run import recipe_of
    from palaestra.store.run_folder import default_root, new_run_path

    name = options.recipe or "default"
    recipe = recipe_of(name, overrides, **short)
    folder = (
        Path(options.folder) if options.folder else new_run_path(default_root(), Path(name).stem)
    )
    if options.dry_run:
        if options.metrics is not None:
            raise InputError("--metrics has no effect with --dry-run, which runs nothing; drop it.")
        from palaestra.cli.dry_run import describe

        return describe(recipe, str(folder), as_json=options.json, on=on_of(options))
    if options.detach:
        from palaestra.api.train_run import place_of
        from palaestra.cli.dry_run import toml

        place_of(recipe, on_of(options))
        words = ["recipe.toml", "--run", str(folder.absolute())]
        return _detach(options, folder, words, {"recipe.toml": toml(recipe)})
    return _begin(recipe, folder, options, team)


def _detach(
    options: argparse.Namespace, folder: Path, words: list[str], files: dict[str, str]
) -> int:
    """Leave a run to the cluster; say how to look after it."""
    from palaestra.cluster.on_ray import OnRay
    from palaestra.cluster.ray_jobs import submit

    if options.on is None:
        raise InputError("--detach leaves a run to a cluster; add --on ray=HOST:PORT.")
    if options.dry_run or options.json:
        raise InputError("--detach ends before the run begins; drop --dry-run and --json.")
    address = OnRay.parse(options.on).address
    words = ["python", "-m", "palaestra", "train", *words, "--on", "ray"]
    if options.wait is not None:
        words += ["--wait", f"{options.wait:g}"]
    if options.metrics is not None:
        words += ["--metrics", options.metrics]
    job = submit(address, shlex.join(words), files)
    at = f" --address {address}" if address else ""
    print(
        f"The job {job} runs it on the machine of the cluster's head, in {folder.absolute()}\n"
        f"  ray job logs {job} --follow{at}   # what it says\n"
        f"  ray job stop {job}{at}   # stops it; --resume {folder.absolute()} goes on"
    )
    return 0


def _shortcuts(options: argparse.Namespace) -> list[str]:
    found = []
    if options.no_imitation:
        found.append("imitation.demonstrations=0")
    if options.control is not None:
        found.append(f'rl.control="{options.control}"')
    if options.log:
        found.append(f"log={json.dumps(options.log)}")
    return found


def _begin(recipe: Recipe, folder: Path, options: argparse.Namespace, team: Team | None) -> int:
    from palaestra.api.metrics_server import serving
    from palaestra.api.train_run import Training
    from palaestra.cli.resources import estimate
    from palaestra.runtime.progress import Reporter

    _check_ranks(recipe)

    def about(recipe: Recipe) -> str:
        return estimate(recipe).minutes

    with (
        resumable(resuming("train", folder), folder),
        serving(options.metrics, folder) as figures,
        Training.begin(
            recipe, folder, reporter=Reporter(), about=about, on=on_of(options)
        ) as training,
    ):
        return _train(training, options, team, figures)


def _resume(options: argparse.Namespace, team: Team | None) -> int:
    folder = Path(options.resume)
    with resumable(resuming("train", folder), folder):
        from palaestra.api.metrics_server import serving
        from palaestra.api.train_run import Training
        from palaestra.runtime.progress import Reporter

        with (
            serving(options.metrics, folder) as figures,
            Training.resume(
                folder, reporter=Reporter(), on=on_of(options), take_over=options.take_over
            ) as training,
        ):
            _check_ranks(training.recipe)
            return _train(training, options, team, figures)


def _check_ranks(recipe: Recipe) -> None:
    """Raise InputError if the recipe cannot be learned by the processes that torchrun started."""
    launched = launched_rank()
    if launched is not None:
        from palaestra.training.ranks import check_launched

        check_launched(recipe, launched)


def _train(
    training: Training, options: argparse.Namespace, team: Team | None, figures: str | None
) -> int:
    """Train to the end and print the report; return the exit code."""
    from rich.console import Console

    from palaestra.evaluation.reports import report, report_files

    if figures is not None:
        training.reporter.say(f"figures at {figures}")
    try:
        built = run_until_interrupted(training.execute(team))
    except Stopped:
        training.run.database.check_present()
        resume = resuming("train", training.folder)
        print(f"\nStopped; nothing is lost. Resume with: {resume}", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps(report.summary(built)))
    else:
        report_files.render(built, Console())
        print(next_steps(training.recipe, training.folder))
    return 0


def next_steps(recipe: Recipe, folder: Path) -> str:
    """Return the commands to type after training, with paths relative to this folder."""
    run, final = shlex.quote(str(folder)), shlex.quote(str(folder / "final"))
    policy = "rl" if recipe.rl.steps else "imitation" if recipe.imitation.demonstrations else "base"
    agent = shlex.quote(recipe.agent.chosen) if recipe.agent.command is None else None
    palaestra = called()
    trial = f"{palaestra} eval --env {recipe.environment.id} --model {final}"
    if agent is not None:
        trial += f" --agent {agent} --max-tokens {recipe.agent.max_tokens}"
    return (
        "\nWhat to type next\n"
        f"  {palaestra} show {run} test/{policy}/0   # one of its tests, turn by turn\n"
        f"  {palaestra} view {run}   # the whole run, in a browser\n"
        f"  {trial}   # more tasks, or other ones"
    )
