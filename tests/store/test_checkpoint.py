"""Checkpoints: whole or absent, and exactly what was saved."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from palaestra.core.errors import InputError
from palaestra.store import checkpoint
from palaestra.store.checkpoint import CorruptCheckpoint
from tests.store import samples

STATE = {"step": 3, "loss": 0.1 + 0.2, "tiny": 5e-324, "random": [2**64 + 1, None], "done": False}


def save(folder: Path, name: str, value: float = 1.0) -> Path:
    tensors = {"model": {"w": torch.full((64, 3), value)}, "optimiser": {"m": torch.ones(5)}}
    return checkpoint.save(folder, name, tensors, STATE)


def test_tensors_and_state_come_back_exactly(tmp_path: Path) -> None:
    tensors = {
        "model": {
            "b": torch.randn(3, 4, dtype=torch.bfloat16),
            "a": torch.randn(7, requires_grad=True),
            "scalar": torch.tensor(float("-inf")),
            "none": torch.zeros(0, 3),
        },
        "random": {"state": torch.get_rng_state()},
        "empty": {},
    }
    checkpoint.save(tmp_path, "one", tensors, STATE)
    back = checkpoint.load(tmp_path, "one")
    assert back.name == "one"
    assert repr(back.state) == repr(STATE)
    assert list(back.tensors) == list(tensors)
    for part, group in tensors.items():
        assert list(back.tensors[part]) == list(group)
        for name, tensor in group.items():
            assert back.tensors[part][name].dtype == tensor.dtype
            assert torch.equal(back.tensors[part][name], tensor)


def test_tied_weights_are_stored_once_and_come_back_tied(tmp_path: Path) -> None:
    shared = torch.randn(1000)
    path = checkpoint.save(tmp_path, "one", {"model": {"in": shared, "out": shared}}, {})
    assert (path / "model.safetensors").stat().st_size < 5000
    model = checkpoint.load(tmp_path, "one").tensors["model"]
    assert model["in"].data_ptr() == model["out"].data_ptr()


def test_views_of_one_memory_are_saved_as_what_they_show(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    views = {"t": base.view(3, 4).T, "half": base[:6], "all": base, "square": base.view(3, 4)}
    checkpoint.save(tmp_path, "one", {"views": views}, {})
    back = checkpoint.load(tmp_path, "one").tensors["views"]
    for name, view in views.items():
        assert torch.equal(back[name], view)


def test_changing_what_was_loaded_does_not_change_the_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, "one")
    checkpoint.load(tmp_path, "one").tensors["model"]["w"].add_(1)
    assert checkpoint.load(tmp_path, "one").tensors["model"]["w"][0, 0] == 1


def test_a_checkpoint_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, "last", 1.0)
    save(tmp_path, "last", 2.0)
    assert checkpoint.load(tmp_path, "last").tensors["model"]["w"][0, 0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_names_stand_in_the_order_of_writing(tmp_path: Path) -> None:
    for name in ("rl-9", "rl-10", "base"):
        save(tmp_path, name)
    assert checkpoint.names(tmp_path) == ["rl-9", "rl-10", "base"]
    checkpoint.remove(tmp_path, "rl-10")
    checkpoint.remove(tmp_path, "rl-10")
    assert checkpoint.names(tmp_path) == ["rl-9", "base"]
    assert checkpoint.names(tmp_path / "missing") == []


def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path) -> None:
    for name in ("", ".hidden", "a/b", ".."):
        with pytest.raises(InputError, match="cannot name a checkpoint"):
            save(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_checkpoint_is_bad_input_that_names_those_there_are(tmp_path: Path) -> None:
    save(tmp_path, "one")
    with pytest.raises(InputError, match=r"no checkpoint 'two'; it holds: one\."):
        checkpoint.load(tmp_path, "two")


# ── corruption ───────────────────────────────────────────────────────────────


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: (path / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda path: os.truncate(path / "model.safetensors", 100), "has 100 bytes instead of"),
        (lambda path: flip_a_bit(path / "model.safetensors"), "is not what was written"),
        (lambda path: os.truncate(path / "state.json", 30), "state.json is not readable"),
        (lambda path: (path / "state.json").unlink(), "state.json is not readable"),
        (
            lambda path: (path / "state.json").write_text(
                (path / "state.json").read_text().replace('"step": 3', '"step": 4')
            ),
            "state.json is not what was written",
        ),
    ],
)
def test_a_damaged_checkpoint_reports_it_and_the_latest_intact_one_is_found(
    tmp_path: Path, damage: object, reason: str
) -> None:
    assert callable(damage)
    save(tmp_path, "first")
    damage(save(tmp_path, "second"))
    with pytest.raises(CorruptCheckpoint, match=reason):
        checkpoint.load(tmp_path, "second")
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.name == "first"
    assert checkpoint.latest(tmp_path / "first") is None


def test_without_verification_sizes_are_still_checked(tmp_path: Path) -> None:
    path = save(tmp_path, "one")
    assert checkpoint.load(tmp_path, "one", verify=False).state == STATE
    os.truncate(path / "optimiser.safetensors", 10)
    with pytest.raises(CorruptCheckpoint):
        checkpoint.load(tmp_path, "one", verify=False)


# ── interrupted writers ──────────────────────────────────────────────────────


def test_an_error_while_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    save(tmp_path, "one")
    with pytest.raises(TypeError):
        checkpoint.save(tmp_path, "one", {"model": {"w": torch.ones(3)}}, {"bad": object()})
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert checkpoint.load(tmp_path, "one").state == STATE


def test_only_what_dead_writers_left_is_cleaned(tmp_path: Path) -> None:
    save(tmp_path, "one")
    gone = samples.python("pass")
    gone.wait()
    (tmp_path / f".tmp-one-{gone.pid}").mkdir()
    (tmp_path / f".old-one-{gone.pid}").mkdir()
    (tmp_path / f".tmp-two-{os.getppid()}").mkdir()  # a living process
    checkpoint.clean(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"one", f".tmp-two-{os.getppid()}"}


def test_a_writer_killed_between_two_renames_loses_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, "last", 1.0)
    save(tmp_path, "fresh", 2.0)
    (tmp_path / "last").rename(tmp_path / f".old-last-{os.getpid()}")
    (tmp_path / "fresh").rename(tmp_path / f".tmp-last-{os.getpid()}")
    checkpoint.clean(tmp_path)
    assert checkpoint.load(tmp_path, "last").tensors["model"]["w"][0, 0] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    writer = """
        import sys, torch
        from pathlib import Path
        from palaestra.store import checkpoint
        step = 0
        while True:
            step += 1
            tensors = {"model": {"w": torch.full((100_000,), float(step))}}
            checkpoint.save(Path(sys.argv[1]), "last", tensors, {"step": step})
            print(step, flush=True)
        """
    rng = random.Random(0)
    for _ in range(3):
        process = samples.python(writer, str(tmp_path))
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 20)):
            done = int(process.stdout.readline())
        try:
            process.wait(rng.random() * 0.02)  # into the middle of a later one
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        for line in process.stdout:
            done = int(line)
        process.wait()
        checkpoint.clean(tmp_path)
        back = checkpoint.load(tmp_path, "last")
        assert back.state["step"] in (done, done + 1)
        assert torch.all(back.tensors["model"]["w"] == back.state["step"])
        assert [path.name for path in tmp_path.iterdir()] == ["last"]
