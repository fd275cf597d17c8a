"""Runs: make one by training, or open one that is there; read it, and go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.api.asking import Effort
from palaestra.api.evaluating import Evaluation, finished
from palaestra.api.naming import name_of_class
from palaestra.api.results import RecordedEpisode, Results, frame
from palaestra.api.telling import reporter
from palaestra.api.training import Training, recipe_of
from palaestra.api.waiting import wait
from palaestra.core.environment import Environment
from palaestra.core.errors import InputError
from palaestra.evaluation import presentation, report
from palaestra.store.run import RunFolder, default_root, new_run_path, run_path

if TYPE_CHECKING:
    import pandas


class Run:
    """A run folder. Everything is read from the folder when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The run's folder."""

    @property
    def recipe(self) -> dict[str, Any]:
        """What the run was asked to do: every key of its recipe, or the terms of an evaluation."""
        with RunFolder.read(self.path) as run:
            return dict(run.database.get("recipe") or {})

    @property
    def phases(self) -> list[str]:
        """The parts of the run that have episodes, such as "test/base" or "rl/3"."""
        with RunFolder.read(self.path) as run:
            return run.database.phases()

    def episodes(self, phase: str) -> list[RecordedEpisode]:
        """The finished episodes of a phase.

        Raises:
            InputError: the run has no such phase.
        """
        with RunFolder.read(self.path) as run:
            known = run.database.phases()
            if phase not in known:
                raise InputError(
                    f"The run {self.path} has no phase '{phase}'; it has: "
                    f"{', '.join(known) or 'none yet'}."
                )
            return [RecordedEpisode.of(episode) for episode in run.database.episodes(phase)]

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One entry per step of reinforcement learning: its number, and all figures of it."""
        with RunFolder.read(self.path) as run:
            return [{"step": step, **values} for step, values in run.database.metrics("rl")]

    @property
    def report(self) -> report.Report:
        """What training has reached so far, with intervals."""
        model = self.path / "final"
        with RunFolder.read(self.path) as run:
            return report.build(run.database, self.path, model=model if model.is_dir() else None)

    @property
    def final(self) -> Path:
        """The folder of the trained policy, a Hugging Face checkpoint.

        Raises:
            InputError: training has not come so far.
        """
        if not (self.path / "final").is_dir():
            raise InputError(
                f"The run {self.path} has no trained policy (yet); go on with it: "
                f'pa.open_run("{self.path}").resume().'
            )
        return self.path / "final"

    @property
    def results(self) -> Results:
        """What an evaluation found; raises InputError for any other run."""
        return Results.read(self.path)

    def resume(self, *, progress: bool = True) -> Run:
        """Go on with a run that stopped; what is done is not done again.

        What infrastructure broke, such as a server that was gone, is lived again.

        Raises:
            InputError: it is neither a training run nor an evaluation.
            RunLocked: another process works on it.
            KeyboardInterrupt: Ctrl-C came; what is done is kept.
        """
        return wait(lambda: self.aresume(progress=progress))

    async def aresume(self, *, progress: bool = True) -> Run:
        """`resume`, to be awaited."""
        say = reporter(progress)
        if "rl" in self.recipe:
            with Training.resume(self.path, reporter=say) as training:
                await _trained(training)
        else:
            with Evaluation.resume(self.path, self._effort(), reporter=say) as evaluation:
                await finished(evaluation)
        return self

    def to_pandas(self) -> pandas.DataFrame:
        """`metrics` as a data frame; raises MissingPackage where pandas is not installed."""
        return frame(self.metrics)

    def _effort(self) -> Effort:
        """Environments that were defined in a script or a notebook live in this process only."""
        told = self.recipe
        names = told.get("environments", [told.get("environment", "")])
        return Effort(workers=0 if any(n.startswith("__main__:") for n in names) else 1)

    def __str__(self) -> str:
        if "rl" not in self.recipe:
            return str(self.results)
        return f"{self.path}: {presentation.headline(self.report)}"

    def __repr__(self) -> str:
        return f"<Run {self.path}>"


def open_run(name: str | Path) -> Run:
    """A run by its folder, or by its name among the runs.

    Raises:
        InputError: there is no run.
    """
    path = run_path(name)
    with RunFolder.read(path):
        return Run(path.absolute())


def train(
    recipe: str | Path = "default",
    *,
    env: str | type[Environment] | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    run: str | Path | None = None,
    progress: bool = True,
    **sections: Mapping[str, Any] | str | bool | int | float,
) -> Run:
    """Train a policy by a recipe.

    Args:
        recipe: a name of `palaestra list recipes`, or a TOML file.
        env: the environment to learn in, or a class of your own.
        algorithm: one of `palaestra list algorithms`.
        seed: of the whole run.
        run: its folder, which must be new; by default `runs/…`.
        progress: whether to say on standard error how it goes.
        **sections: other keys of the recipe, tables as mappings: `rl={"steps": 10}`. A value may
            be a class of an agent or a credit rule. `palaestra train --dry-run` shows all keys.

    Raises:
        InputError: something that cannot work; nothing was started.
        KeyboardInterrupt: Ctrl-C came; what is done is kept, and the run can be resumed.
    """
    return wait(
        lambda: atrain(
            recipe,
            env=env,
            algorithm=algorithm,
            seed=seed,
            run=run,
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
    run: str | Path | None = None,
    progress: bool = True,
    **sections: Mapping[str, Any] | str | bool | int | float,
) -> Run:
    """`train`, to be awaited."""
    overrides = []
    if isinstance(env, type):
        env = name_of_class(env)
        overrides.append("environment.workers=0")  # a worker might not find the class
    chosen = recipe_of(str(recipe), overrides, sections, env=env, algorithm=algorithm, seed=seed)
    folder = Path(run) if run else new_run_path(default_root(), Path(recipe).stem)
    with Training.begin(chosen, folder, reporter=reporter(progress)) as training:
        await _trained(training)
    return Run(folder.absolute())


async def _trained(training: Training) -> None:
    """Live a run to its end; where it is stopped before, say how to go on."""
    try:
        await training.live()
    except asyncio.CancelledError:
        training.reporter.say(
            f'stopped; nothing is lost, go on with: pa.open_run("{training.folder}").resume()'
        )
        raise
