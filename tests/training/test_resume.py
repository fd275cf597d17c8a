"""Runs survive anything: kills, Ctrl-C, full disks, and two processes at once."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from palaestra import __version__
from palaestra.cli.interrupt import resuming
from palaestra.cli.main import main
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from tests.training.runs import (
    RECIPE,
    command,
    environment,
    palaestra,
    recorded_episodes,
    started,
    weights_hash,
    write_recipe,
)

SHORT = (
    RECIPE.replace("demonstrations = 64", "demonstrations = 16")
    .replace("steps = 4", "steps = 2")
    .replace("tasks = 8", "tasks = 2")
    .replace("transfer_tasks = 4", "transfer_tasks = 1")
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    palaestra("train", write_recipe(folder), "--run", folder / "run", "--json")
    return folder / "run"


def killed_run(folder: Path, kills: int, seed: int) -> Path:
    """A run killed at `kills` random moments, then finished."""
    rng = random.Random(seed)
    run = folder / "run"
    arguments: list[str | Path] = ["train", write_recipe(folder), "--run", run]
    done = 0
    while done < kills:
        process = subprocess.Popen(
            command(*arguments),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        process.stderr.readline()  # the run folder exists
        time.sleep(rng.uniform(0.0, 5.0))
        ended = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done += 1
        arguments = ["train", "--resume", run]
        if ended:
            break
    palaestra("train", "--resume", run, "--json")
    return run


@pytest.mark.slow
def test_a_run_killed_three_times_ends_as_if_undisturbed(undisturbed: Path, tmp_path: Path) -> None:
    run = killed_run(tmp_path, kills=3, seed=7)
    assert weights_hash(run) == weights_hash(undisturbed)
    assert recorded_episodes(run) == recorded_episodes(undisturbed)


@pytest.mark.slow
def test_a_run_killed_twenty_times_ends_as_if_undisturbed(
    undisturbed: Path, tmp_path: Path
) -> None:
    for series in range(4):  # a finished run cannot be killed: several runs, five kills each
        folder = tmp_path / str(series)
        folder.mkdir()
        run = killed_run(folder, kills=5, seed=series)
        assert weights_hash(run) == weights_hash(undisturbed)
        assert recorded_episodes(run) == recorded_episodes(undisturbed)


@pytest.mark.slow
def test_the_same_short_recipe_and_seed_give_the_same_run_in_two_processes(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, SHORT)
    palaestra("train", recipe, "--run", tmp_path / "there")
    palaestra("train", recipe, "--run", tmp_path / "here")
    assert weights_hash(tmp_path / "here") == weights_hash(tmp_path / "there")
    assert recorded_episodes(tmp_path / "here") == recorded_episodes(tmp_path / "there")


@pytest.mark.slow
def test_the_same_recipe_and_seed_give_the_same_run(undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "again"
    palaestra("train", write_recipe(tmp_path), "--run", run)
    assert weights_hash(run) == weights_hash(undisturbed)
    assert recorded_episodes(run) == recorded_episodes(undisturbed)


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_and_explains_how_to_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = started("train", write_recipe(tmp_path), "--run", run, until="imitation")
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output.rstrip().endswith(f"Resume with: {resuming('train', run)}")
    assert "Traceback" not in output
    palaestra("train", "--resume", run)
    assert (run / "report.md").is_file()


@pytest.mark.slow
def test_a_finished_run_can_be_resumed_and_changes_nothing(undisturbed: Path) -> None:
    before = weights_hash(undisturbed)
    done = palaestra("train", "--resume", undisturbed, "--json")
    assert json.loads(done.stdout)["success"]["rl"]["n"] == 8
    assert weights_hash(undisturbed) == before


@pytest.mark.slow
def test_a_live_run_goes_on_within_an_episode(tmp_path: Path) -> None:
    """Without deterministic mode, recorded turns of an interrupted episode do not run again."""
    recipe = RECIPE.replace("deterministic = true", "")
    run = tmp_path / "run"
    process = started("train", write_recipe(tmp_path, recipe), "--run", run, until="reinforcement")
    time.sleep(0.5)
    process.kill()
    process.communicate()
    with RunFolder.read(run) as opened:
        store = opened.database
        recorded = [episode for phase in store.phases() for episode in store.episodes(phase)]
    palaestra("train", "--resume", run)
    with RunFolder.read(run) as opened:
        for episode in recorded:
            assert opened.database.episode(episode.key) == episode


@pytest.mark.slow
def test_two_processes_cannot_work_on_one_run(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", load("quick").model_dump(mode="json")):
        refused = palaestra("train", "--resume", tmp_path / "run", check=2)
    assert str(os.getpid()) in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow  # tests/store/test_take_over.py has the record's part of it
def test_a_frozen_run_that_was_taken_over_ends_when_it_wakes(
    undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    refused = palaestra("train", write_recipe(tmp_path), "--run", run, "--take-over", check=2)
    assert "no effect without --resume" in refused.stderr and not run.exists()
    frozen = started("train", write_recipe(tmp_path), "--run", run, until="reinforcement")
    frozen.send_signal(signal.SIGSTOP)
    os.waitpid(frozen.pid, os.WUNTRACED)
    assert "--take-over" in palaestra("train", "--resume", run, check=2).stderr
    palaestra("train", "--resume", run, "--take-over")
    frozen.send_signal(signal.SIGCONT)
    _, output = frozen.communicate(timeout=60)
    assert frozen.returncode == 1, output
    assert "was taken over by" in output and "Traceback" not in output
    assert weights_hash(run) == weights_hash(undisturbed)
    assert recorded_episodes(run) == recorded_episodes(undisturbed)


@pytest.mark.slow
def test_without_any_checkpoint_all_is_learned_again_from_the_record(
    undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    for part in ("checkpoints", "final"):
        shutil.rmtree(run / part)
    done = palaestra("train", "--resume", run)
    assert "after imitation is left: training again on what was recorded" in done.stderr
    assert weights_hash(run) == weights_hash(undisturbed)
    assert recorded_episodes(run) == recorded_episodes(undisturbed)
    with RunFolder.read(undisturbed) as before, RunFolder.read(run) as after:
        names = [[row["name"] for row in of.database.get("stages") or []] for of in (before, after)]
        assert names[0] == names[1]  # no stage is counted twice
        steps = [[step for step, _ in of.database.metrics("rl")] for of in (before, after)]
        assert steps[0] == steps[1]


@pytest.mark.slow
def test_what_is_saved_of_a_damaged_run_is_gone_on_with(undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    with closing(sqlite3.connect(run / "run.sqlite")) as connection, connection:
        for phase in ("test/base", "test/rl", "rl/2"):
            connection.execute(
                "UPDATE event SET body = '{' WHERE id = (SELECT max(last) FROM record"
                " WHERE phase = ?)",
                (phase,),
            )
    palaestra("train", "--resume", run, check=2)
    saved = json.loads(palaestra("doctor", run, "--json", check=1).stdout)["salvaged"]
    assert saved["dropped"] == 3
    new = Path(saved["run"])
    palaestra("train", "--resume", new)
    assert weights_hash(new) == weights_hash(undisturbed)
    tested = [
        [e for e in recorded_episodes(of) if str(e[0]).startswith("t")] for of in (new, undisturbed)
    ]
    assert tested[0] == tested[1]  # the lost ones ran again
    assert len(recorded_episodes(new)) == len(recorded_episodes(undisturbed)) - 1


@pytest.mark.slow
def test_what_was_spent_does_not_count_against_learning_it_again(tmp_path: Path) -> None:
    recipe = RECIPE.replace("[rl]", "[rl]\ntokens = 1")  # used up by the first step
    palaestra("train", write_recipe(tmp_path, recipe), "--run", tmp_path / "run")
    before = weights_hash(tmp_path / "run")
    for part in ("checkpoints", "final"):
        shutil.rmtree(tmp_path / "run" / part)
    palaestra("train", "--resume", tmp_path / "run")
    assert weights_hash(tmp_path / "run") == before


def of_version(run: Path, version: str) -> Path:
    """The run as if that palaestra had made it."""
    about = run / "run.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "palaestra": version}))
    return run


def test_a_key_of_another_version_is_reported_with_both_versions_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = {**load("quick").model_dump(mode="json"), "of_tomorrow": 1}
    RunFolder.create(tmp_path / "run", recipe).close()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 2
    output = capsys.readouterr().err
    assert "'of_tomorrow'" in output and __version__ not in output  # the same one: only the key
    run = of_version(tmp_path / "run", "0.0.9")
    assert main(["train", "--resume", str(run)]) == 2
    output = capsys.readouterr().err
    versions = f"{run} was made by palaestra 0.0.9, and this is palaestra {__version__}"
    assert 0 < output.index(versions) < output.index("'of_tomorrow'")
    assert "pip install palaestra==0.0.9" in output
    RunFolder.open(run).close()  # and it is not left locked


def test_going_on_with_a_run_of_another_version_is_reported_and_kept(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {}).close()
    with RunFolder.open(of_version(tmp_path / "run", "0.0.9")) as run:
        output = run.note_version()
        assert output is not None and "0.0.9" in output and __version__ in output
        assert run.note_version() is None  # once
        assert run.database.get("versions") == ["0.0.9", __version__]


def test_a_run_of_another_version_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunFolder.create(tmp_path / "run", load("quick").model_dump(mode="json")).close()
    about = tmp_path / "run" / "run.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "format": 999}))
    assert main(["train", "--resume", str(tmp_path / "run")]) == 2
    assert "999" in capsys.readouterr().err


@pytest.mark.slow
def test_a_full_disk_stops_the_run_with_one_sentence_and_loses_nothing(
    undisturbed: Path, tmp_path: Path
) -> None:
    """Files may not grow past 1 MB: the store fits, a checkpoint of this width does not."""
    run = tmp_path / "run"
    recipe = write_recipe(tmp_path, RECIPE.replace("width = 64", "width = 192"))

    def small_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))

    done = subprocess.run(
        command("train", recipe, "--run", run),
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=small_disk,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "space" in done.stderr or "full" in done.stderr
    palaestra("train", "--resume", run)
    assert (run / "final" / "model.safetensors").is_file()
