"""Runs: start one by training or open an existing one, read it, and resume it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.api.evaluating import Evaluation, finished
from palaestra.api.evaluation_request import Effort
from palaestra.api.naming import name_of_class
from palaestra.api.reporting import reporter
from palaestra.api.results import RecordedEpisode, Results, frame
from palaestra.api.train_run import Training, recipe_of
from palaestra.api.waiting import wait
from palaestra.core.environment import Environment
from palaestra.core.errors import InputError
from palaestra.evaluation.reports import report, report_files
from palaestra.evaluation.reports.learning_curves import curve_stage
from palaestra.store.run_folder import RunFolder, default_root, new_run_path, run_path
from palaestra.training.renamed_keys import with_present_names

if TYPE_CHECKING:
    import pandas


class Run:
    """A run folder; every property reads from the folder when it is accessed."""

    def __init__(self, name: str | Path) -> None:
        """Open a run by its folder, or by its name in the folder of runs.

        Raises:
            InputError: no such run.
        """
        path = run_path(name)
        with RunFolder.read(path):
            self.path = path.absolute()
            """The run's folder."""

    @property
    def recipe(self) -> dict[str, Any]:
        """The configuration of the run: every key of its recipe, or the terms of an evaluation."""
        with RunFolder.read(self.path) as run:
            return with_present_names(run.database.get("recipe") or {})

    @property
    def phases(self) -> list[str]:
        """The parts of the run that have episodes, such as "test/base" or "rl/3"."""
        with RunFolder.read(self.path) as run:
            return run.database.phases()

    def episodes(self, phase: str) -> list[RecordedEpisode]:
        """Return the finished episodes of a phase.

        Raises:
            InputError: the run has no such phase.
        """
        with RunFolder.read(self.path) as run:
            known = run.database.phases()
            if phase not in known:
                raise InputError(
                    f"The run {self.path} has no phase '{phase}'; choose from: "
                    f"{', '.join(known) or 'none yet'}."
                )
            return [RecordedEpisode.of(episode) for episode in run.database.episodes(phase)]

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One entry per step of (the last) reinforcement learning: its number and its metrics."""
        with RunFolder.read(self.path) as run:
            database = run.database
            stage = curve_stage(database.metric_phases(), database.metrics)
            return [{"step": step, **values} for step, values in database.metrics(stage)]

    @property
    def report(self) -> report.Report:
        """The report of training so far, with intervals."""
        model = self.path / "final"
        with RunFolder.read(self.path) as run:
            return report.build(run.database, self.path, model=model if model.is_dir() else None)

    @property
    def final(self) -> Path:
        """The folder of the trained policy, a Hugging Face checkpoint.

        Raises:
            InputError: training has not finished.
        """
        if not (self.path / "final").is_dir():
            raise InputError(
                f"The run {self.path} has no trained policy yet; resume it: "
                f'pa.Run("{self.path}").resume().'
            )
        return self.path / "final"

    @property
    def results(self) -> Results:
        """The results of an evaluation; raises InputError for any other run."""
        return Results.read(self.path)

    def resume(
        self, *, on: str | None = None, progress: bool = True, take_over: bool = False
    ) -> Run:
        """Resume a run that stopped; finished work is not repeated.

        Episodes that infrastructure broke, such as by a lost server, run again.

        Args:
            on: see `train`; the run may have begun elsewhere.
            progress: whether to show progress on standard error.
            take_over: whether to take the run from a process that is frozen or cannot be reached;
                whatever it still writes is refused.

        Raises:
            InputError: it is neither a training run nor an evaluation.
            RunLocked: another process works on it.
            KeyboardInterrupt: Ctrl-C; finished work is kept.
        """
        return wait(lambda: self.aresume(on=on, progress=progress, take_over=take_over))

    async def aresume(
        self, *, on: str | None = None, progress: bool = True, take_over: bool = False
    ) -> Run:
        """Resume like `resume`, to be awaited."""
        say = reporter(progress)
        if "rl" in self.recipe:
            with Training.resume(self.path, reporter=say, on=on, take_over=take_over) as training:
                await _trained(training)
        else:
            with Evaluation.resume(
                self.path, self._effort(on), reporter=say, take_over=take_over
            ) as evaluation:
                await finished(evaluation)
        return self

    def to_pandas(self) -> pandas.DataFrame:
        """Return `metrics` as a data frame; raise MissingPackage if pandas is not installed."""
        return frame(self.metrics)

    def _effort(self, on: str | None) -> Effort:
        """Return zero workers for classes of a script or notebook, which only this process has."""
        recipe = self.recipe
        names = recipe.get("environments", [recipe.get("environment", "")])
        here = any(name.startswith("__main__:") for name in names)
        return Effort(workers=0 if here else 1, on=on)

    def __str__(self) -> str:
        if "rl" not in self.recipe:
            return str(self.results)
        return f"{self.path}: {report_files.headline(self.report)}"

    def __repr__(self) -> str:
        return f"<Run {self.path}>"


def train(
    recipe: str | Path = "default",
    *,
    env: str | type[Environment] | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    log: str | Sequence[str] | None = None,
    run: str | Path | None = None,
    on: str | None = None,
    progress: bool = True,
    **sections: Mapping[str, Any] | str | bool | int | float,
) -> Run:
    """Train a policy with a recipe.

    Args:
        recipe: a name of `palaestra list recipes`, or a TOML file.
        env: the environment to learn in, or a class of your own.
        algorithm: one of `palaestra list algorithms`.
        seed: of the whole run.
        log: trackers that also receive metrics: tensorboard, wandb, mlflow or trackio.
        run: its folder, which must be new; by default `runs/…`.
        on: a Ray cluster whose machines run the sessions: "ray", or "ray=ADDRESS".
        progress: whether to show progress on standard error.
        **sections: other keys of the recipe, tables as mappings: `rl={"steps": 10}`. A value may
            be a class of an agent or a credit rule. `palaestra train --dry-run` shows all keys.

    Raises:
        InputError: the recipe is invalid; nothing was started.
        KeyboardInterrupt: Ctrl-C; finished work is kept, and the run can be resumed.
    """
    return wait(
        lambda: atrain(
            recipe,
            env=env,
            algorithm=algorithm,
            seed=seed,
            log=log,
            run=run,
            on=on,
            progress=progress,
            **sections,
        )
    )


async def atrain(
    recipe: str | Path = "default",
    *,
    env: str | type[Environment] | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    log: str | Sequence[str] | None = None,
    run: str | Path | None = None,
    on: str | None = None,
    progress: bool = True,
    **sections: Mapping[str, Any] | str | bool | int | float,
) -> Run:
    """Train like `train`, to be awaited."""
    overrides = []
    if isinstance(env, type):
        env = name_of_class(env)
        overrides.append("environment.workers=0")  # a worker might not find the class
    if log is not None:
        overrides.append(f"log={json.dumps([log] if isinstance(log, str) else list(log))}")
    chosen = recipe_of(str(recipe), overrides, sections, env=env, algorithm=algorithm, seed=seed)
    folder = Path(run) if run else new_run_path(default_root(), Path(recipe).stem)
    with Training.begin(chosen, folder, reporter=reporter(progress), on=on) as training:
        await _trained(training)
    return Run(folder)


async def _trained(training: Training) -> None:
    """Execute a run; if it is stopped early, report how to resume it."""
    try:
        await training.execute()
    except asyncio.CancelledError:
        training.reporter.say(
            f'stopped; nothing is lost, resume it with: pa.Run("{training.folder}").resume()'
        )
        raise
