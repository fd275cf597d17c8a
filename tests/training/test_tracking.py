"""Trackers get what a run records: read back with the packages themselves."""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.errors import MissingPackage
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training import tracking
from palaestra.training.recipe import load
from palaestra.training.trackers import KINDS, check_tracker
from palaestra.training.tracking import Tracking, flat

SMALL: dict[str, Any] = {
    "concurrency": 8,
    "environment": {"id": "probe/umbrella-4", "transfer": None, "workers": 0},
    "model": {"name": "tiny", "context": 512, "tiny": {"layers": 1, "width": 32, "heads": 2}},
    "imitation": {"demonstrations": 4, "epochs": 1},
    "evaluation": {"tasks": 4},
    "progress": False,
}
BLOCK = 32768  # bytes of a block of W&B's files
Curves = dict[str, list[tuple[int, float]]]
"""Steps and values, by the name of the figure."""


def installed(name: str) -> bool:
    try:
        check_tracker(name)
    except MissingPackage:
        return False
    return True


TRACKERS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(not installed(name), reason=f"needs palaestra[{name}]"),
    )
    for name in KINDS
]


@pytest.fixture(autouse=True)
def places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each where it writes by default, but for trackio, whose default is of the whole machine."""
    for name in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    if "trackio" not in sys.modules:  # which reads it once
        os.environ["TRACKIO_DIR"] = str(tmp_path_factory.mktemp("trackio"))


# ── what a tracker has, as its own package reads it ──────────────────────────


def of_tensorboard(run: Path) -> tuple[int, Curves, dict[str, str]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), {"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    curves = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]}
    [text] = events.Tensors("recipe/text_summary")
    rows = text.tensor_proto.string_val[0].decode().splitlines()[2:]
    configuration = dict(row.strip("|").replace("`", "").split("|") for row in rows)
    return 1, curves, configuration


def records_of_wandb(file: Path) -> Iterator[bytes]:
    """The records of an offline run: LevelDB's log format after a header of seven bytes."""
    data, at, parts = file.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if kind:  # 1: whole; 2, 3, 4: first, middle and last part; 0: the rest of a block is empty
            parts += data[at + 7 : at + 7 + length]
            if kind in (1, 4):
                yield parts
                parts = b""
        at += 7 + length if kind else 1
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK


def of_wandb(run: Path) -> tuple[int, Curves, dict[str, str]]:
    from wandb.proto.wandb_internal_pb2 import Record

    ids, curves, configuration = set(), Curves(), {}
    for file in sorted(run.glob("wandb/offline-run-*/*.wandb")):
        for data in records_of_wandb(file):
            record = Record.FromString(data)
            if record.HasField("run"):
                ids.add(record.run.run_id)
                configuration |= {
                    u.key: str(json.loads(u.value_json)) for u in record.run.config.update
                }
            if record.HasField("history"):
                row = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
                [axis] = [name for name in row if name.endswith("/step")]
                for name, value in row.items():
                    if name != axis and "/" in name:
                        curves.setdefault(name, []).append((row[axis], value))
    return len(ids), curves, configuration


def of_mlflow(run: Path) -> tuple[int, Curves, dict[str, str]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{run}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("palaestra")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    data = runs[0].data
    curves = {
        name: [(m.step, m.value) for m in client.get_metric_history(runs[0].info.run_id, name)]
        for name in data.metrics
    }
    return len(runs), curves, data.params


def of_trackio(run: Path) -> tuple[int, Curves, dict[str, str]]:
    from trackio.sqlite_storage import SQLiteStorage

    [name] = [n for n in SQLiteStorage.get_runs("palaestra") if n.startswith(run.name + "-")]
    curves = Curves()
    for row in SQLiteStorage.get_logs("palaestra", name):
        for figure, value in row.items():
            if "/" in figure:
                curves.setdefault(figure, []).append((row["step"], value))
    configuration = SQLiteStorage.get_run_config("palaestra", name)
    return 1, curves, {key: str(value) for key, value in configuration.items()}


READERS: dict[str, Callable[[Path], tuple[int, Curves, dict[str, str]]]] = {
    "tensorboard": of_tensorboard,
    "wandb": of_wandb,
    "mlflow": of_mlflow,
    "trackio": of_trackio,
}


def test_each_tracker_is_read_back() -> None:
    assert READERS.keys() == KINDS.keys()


# ── a whole run ──────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pa.Run:
    """A small run that all installed trackers have followed."""
    if "trackio" not in sys.modules:
        os.environ["TRACKIO_DIR"] = str(tmp_path_factory.mktemp("trackio"))
    folder = tmp_path_factory.mktemp("runs") / "whole"
    log = [name for name in KINDS if installed(name)]
    rl = {"steps": 2, "tasks": 2, "group": 2}
    return pa.train("quick", log=log, rl=rl, run=folder, **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_tracker_has_every_figure_of_a_run_once(run: pa.Run, tracker: str) -> None:
    assert pa.Run(run.path).resume(progress=False).metrics == run.metrics  # adds nothing
    runs, curves, configuration = READERS[tracker](run.path)
    assert runs == 1
    for name in run.metrics[0].keys() - {"step"}:
        recorded = [(int(row["step"]), row[name]) for row in run.metrics if name in row]
        assert curves[f"rl/{name}"] == [(n, pytest.approx(v, 1e-5)) for n, v in recorded], name
    assert [step for step, _ in curves["imitation/loss"]] == [1]
    for policy, success in run.report.success.items():
        assert curves[f"test/{policy}/success"] == [(0, pytest.approx(success.mean))]
        assert curves[f"test/{policy}/tasks"] == [(0, 4)]
    assert (
        configuration["rl.steps"] == "2" and configuration["environment.id"] == "probe/umbrella-4"
    )


# ── runs that stop, trackers that fail ───────────────────────────────────────


def opened(folder: Path) -> RunFolder:
    return RunFolder.open(folder) if folder.exists() else RunFolder.create(folder, {})


def session(folder: Path, name: str, steps: range, output: io.StringIO | None = None) -> None:
    """One process's part of a run: it records the steps and sends them to a tracker."""
    settings = load("quick", [f'log=["{name}"]']).model_dump(mode="json")
    reporter = Reporter(Console(file=output or io.StringIO(), width=1000))
    with opened(folder) as run, Tracking(run, settings, reporter) as tracked:
        for step in steps:
            run.database.add_metrics("rl", step, {"reward": step / 2})
            tracked.log("rl", step, {"reward": step / 2})


@pytest.mark.slow
@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_resumed_run_goes_on_in_the_trackers_run(tracker: str, tmp_path: Path) -> None:
    folder = tmp_path / f"resumed-{tracker}"
    session(folder, tracker, range(1, 4))
    with opened(folder) as run:  # recorded by a process that died before it sent it
        run.database.add_metrics("rl", 4, {"reward": 2.0})
    session(folder, tracker, range(3, 7))  # from a checkpoint of step 2 on
    runs, curves, _ = READERS[tracker](folder)
    assert runs == 1
    assert curves["rl/reward"] == [(step, step / 2) for step in range(1, 7)]


def wait_for(folder: Path, sent: str) -> None:
    deadline = time.monotonic() + 120
    while not (folder.is_file() and sent in folder.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.skipif(not installed("tensorboard"), reason="needs palaestra[tensorboard]")
def test_a_tracker_that_fails_stops_nothing_and_is_reported_once(tmp_path: Path) -> None:
    folder, output = tmp_path / "run", io.StringIO()
    settings = load("quick", ['log=["tensorboard"]']).model_dump(mode="json")
    reporter = Reporter(Console(file=output, width=1000))
    with opened(folder) as run, Tracking(run, settings, reporter) as tracked:
        tracked.log("rl", 1, {"reward": 0.0})
        wait_for(folder / "tensorboard/palaestra.json", '"rl": 1')
        shutil.rmtree(folder / "tensorboard")
        for step in (2, 3, 4):
            run.database.add_metrics("rl", step, {"reward": 0.0})
            tracked.log("rl", step, {"reward": 0.0})
    assert output.getvalue().count("tensorboard failed (FileNotFoundError") == 1
    assert len(output.getvalue().strip().splitlines()) == 1
    session(folder, "tensorboard", range(5, 6))
    assert [step for step, _ in of_tensorboard(folder)[1]["rl/reward"]] == [2, 3, 4, 5]


@pytest.mark.skipif(not installed("mlflow"), reason="needs palaestra[mlflow]")
def test_a_tracker_that_never_answers_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, output = socket.create_server(("127.0.0.1", 0)), io.StringIO()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(tracking, "PATIENCE", 0.5)
    session(tmp_path / "run", "mlflow", range(1, 3), output)
    silent.close()
    assert "mlflow has not received everything after 0 s; resume the run" in output.getvalue()


def test_a_run_goes_on_where_a_tracker_cannot_begin(tmp_path: Path) -> None:
    name = next(name for name in KINDS if installed(name))
    folder, output = tmp_path / "run", io.StringIO()
    opened(folder).close()
    (folder / name).write_text("a file where the tracker's folder should be")
    session(folder, name, range(1, 3), output)
    assert output.getvalue().count(f"{name} failed (FileExistsError") == 1


# ── before anything starts ───────────────────────────────────────────────────


@pytest.mark.parametrize("name", KINDS)
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in KINDS[name].needs:
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "path", [])
    importlib.invalidate_caches()
    with pytest.raises(
        MissingPackage, match=rf"install it with: pip install 'palaestra\[{name}\]'"
    ):
        check_tracker(name)


def test_a_name_that_is_unknown_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["train", "quick", "--log", "tensorbord", "--run", str(tmp_path / "run")]
    assert main(asked) == 2
    assert (
        "There is no tracker 'tensorbord'. Did you mean 'tensorboard'?" in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_a_recipe_names_one_tracker_or_several() -> None:
    assert load("quick").log == ()
    assert load("quick", ["log=wandb"]).log == ("wandb",)
    assert load("quick", ['log=["wandb", "mlflow"]']).log == ("wandb", "mlflow")


def test_settings_are_reported_under_the_keys_of_the_recipe() -> None:
    configuration = flat({"seed": 1, "rl": {"steps": 2, "critic": None}, "log": ["wandb"]})
    assert configuration == {"seed": 1, "rl.steps": 2, "log": '["wandb"]'}
