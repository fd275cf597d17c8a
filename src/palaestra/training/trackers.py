"""Experiment trackers: TensorBoard, Weights & Biases, MLflow and trackio.

Each is one class with the same three methods. A tracker writes into the run's folder unless its
own environment variables say otherwise; none of them needs a network.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from palaestra.core.errors import MissingPackage, UnknownName

PROJECT = "palaestra"  # project or experiment of the runs
PARAMETERS = 100  # maximum per request to MLflow
MLFLOW_LENGTH = 6000  # maximum of a parameter's value


class Ending(Enum):
    """The ways in which a process ends its work on a run."""

    FINISHED = "finished"
    """The run is done."""
    STOPPED = "stopped"
    """The run was interrupted and can be resumed."""
    FAILED = "failed"
    """An error ended it."""


class Tracker(Protocol):
    """A receiver of metrics; a resumed run opens a new one with the same `id`."""

    id: str
    """The tracker's identifier of the run."""

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Take the figures of one step of a phase; steps come in order."""

    def close(self, ending: Ending) -> None:
        """Write the remaining data."""


@dataclass(frozen=True, slots=True)
class Target:
    """The run that a tracker is opened for, and where to write."""

    folder: Path
    """The tracker's folder in the run's folder; it exists."""
    name: str
    """The run's name."""
    id: str | None
    """The tracker's identifier of a resumed run; None for a new run."""
    settings: Mapping[str, str | float | bool]
    """The recipe, with dotted keys."""

    @property
    def fresh_id(self) -> str:
        """The name of the run with a unique suffix."""
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', self.name)}-{os.urandom(4).hex()}"


class TensorBoard:
    """Event files that `tensorboard --logdir` reads."""

    def __init__(self, target: Target) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.id = target.id or target.name
        self._writer = SummaryWriter(str(target.folder))
        if target.id is None:
            table = "".join(f"|`{key}`|`{value}`|\n" for key, value in target.settings.items())
            self._writer.add_text("recipe", f"|key|value|\n|-|-|\n{table}")

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{phase}/{name}", value, step)
        self._writer.flush()

    def close(self, ending: Ending) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; offline unless WANDB_MODE says otherwise."""

    def __init__(self, target: Target) -> None:
        import wandb

        self.id = target.id or target.fresh_id
        self._phases: set[str] = set()
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            dir=target.folder.parent,
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=target.name,
            id=self.id,
            resume="allow",
            mode=mode,
            config=dict(target.settings),
            reinit="create_new",
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                x_save_requirements=False,
            ),
        )

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        if phase not in self._phases:  # an axis of its own: wandb's only grows
            self._phases.add(phase)
            self._run.define_metric(f"{phase}/*", step_metric=f"{phase}/step")
        named = {f"{phase}/{name}": value for name, value in values.items()}
        self._run.log({f"{phase}/step": step, **named})

    def close(self, ending: Ending) -> None:
        self._run.finish(exit_code=0 if ending is Ending.FINISHED else 1)


class MLflow:
    """A run in an MLflow database, in the run's folder unless MLFLOW_TRACKING_URI is set."""

    def __init__(self, target: Target) -> None:
        import logging

        logging.getLogger("alembic").setLevel(logging.WARNING)
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        where = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(where or f"sqlite:///{target.folder.absolute()}/mlflow.db")
        if target.id is not None:
            self.id = target.id
            self._client.set_terminated(self.id, "RUNNING")
            return
        named = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(named)
        files = None if where else (target.folder / "artifacts").absolute().as_uri()
        experiment = known.experiment_id if known else self._client.create_experiment(named, files)
        self.id = self._client.create_run(experiment, run_name=target.name).info.run_id
        parameters = [Param(k, str(v)[:MLFLOW_LENGTH]) for k, v in target.settings.items()]
        for start in range(0, len(parameters), PARAMETERS):
            self._client.log_batch(self.id, params=parameters[start : start + PARAMETERS])

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        named = [Metric(f"{phase}/{name}", value, now, step) for name, value in values.items()]
        self._client.log_batch(self.id, metrics=named)

    def close(self, ending: Ending) -> None:
        status = {Ending.FINISHED: "FINISHED", Ending.STOPPED: "KILLED", Ending.FAILED: "FAILED"}
        self._client.set_terminated(self.id, status[ending])


class Trackio:
    """A run of trackio, in the folder that `trackio show` reads (TRACKIO_DIR)."""

    def __init__(self, target: Target) -> None:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is the run's own
            import trackio

            self.id = target.id or target.fresh_id
            self._run = trackio.init(
                project=PROJECT,
                name=self.id,
                resume="allow",
                config=dict(target.settings),
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({f"{phase}/{name}": value for name, value in values.items()}, step=step)

    def close(self, ending: Ending) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()


@dataclass(frozen=True, slots=True)
class Kind:
    """A tracker that a recipe can name."""

    open: Callable[[Target], Tracker]
    needs: tuple[str, ...]
    """The packages that it requires."""


KINDS = {
    "mlflow": Kind(MLflow, ("mlflow", "sqlalchemy", "alembic")),
    "tensorboard": Kind(TensorBoard, ("tensorboard",)),
    "trackio": Kind(Trackio, ("trackio",)),
    "wandb": Kind(WeightsAndBiases, ("wandb",)),
}
"""Trackers by name; palaestra's extra of the same name installs each."""


def check_tracker(name: str) -> None:
    """Raise UnknownName or MissingPackage if a tracker cannot be opened."""
    if name not in KINDS:
        raise UnknownName("tracker", name, KINDS)
    for package in KINDS[name].needs:
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(
                f"The tracker '{name}' needs the package '{package}', which is not installed; "
                f"install it with: pip install 'palaestra[{name}]'"
            )
