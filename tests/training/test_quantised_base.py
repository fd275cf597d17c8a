"""LoRA on a quantised base, end to end: trained, resumed, evaluated, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.models.local.adapter_config import WEIGHTS
from palaestra.models.local.quantisation import FORMATS
from palaestra.training.run_context import RunContext
from tests.chosen import mostly_slow
from tests.models.local.checkpoints import write_checkpoint
from tests.training.runs import RECIPE, recorded_episodes, weights_hash, write_recipe
from tests.training.test_trained_adapters import WORLD, trained

LORA = '\n[training]\nweights = "lora"\nlora_rank = 4\n'


def recipe(format: str) -> str:
    """A deterministic recipe of two steps of RL for the tiny transformer."""
    text = RECIPE.replace("demonstrations = 64", "demonstrations = 8").replace(
        "epochs = 4", "epochs = 1"
    )
    text = text.replace("steps = 4", "steps = 2").replace(
        "checkpoint_every = 2", "checkpoint_every = 1"
    )
    return text.replace('name = "tiny"', f'name = "tiny"\nquantise = "{format}"') + LORA


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantised") / "base"
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def run(base: Path) -> pa.Run:
    return trained(str(base), base.parent / "run", quantise="int8")


@pytest.mark.slow
@pytest.mark.parametrize("format", mostly_slow(FORMATS, "int8"))
def test_a_run_on_a_quantised_base_resumes_bit_for_bit(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(write_recipe(tmp_path, recipe(format)))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["train", file, "--run", str(whole), "--json"]) == 0
    save = RunContext.save

    def stopped(self: RunContext, name: str, *rest: Any) -> None:
        save(self, name, *rest)
        if name == "rl-000001":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunContext, "save", stopped)
        assert main(["train", file, "--run", str(cut), "--json"]) != 0
    assert not (cut / "final").exists()
    assert main(["train", "--resume", str(cut), "--json"]) == 0
    assert weights_hash(cut) == weights_hash(whole)
    assert recorded_episodes(cut) == recorded_episodes(whole)


def test_the_adapter_acts_on_its_quantised_base_and_on_no_other(
    base: Path, run: pa.Run, tmp_path: Path
) -> None:
    with safe_open(run.final / "adapter" / WEIGHTS, "pt") as file:
        assert file.metadata()["quantisation"] == "int8"
    name = f"{base}?quantise=int8&adapter={run.path}"
    options: dict[str, Any] = {"n": 2, "workers": 0, "progress": False}
    found = pa.evaluate(WORLD, model=name, run=tmp_path / "eval", **options)
    assert len(found.episodes) == 2
    for wrong in ("", "quantise=nf4&"):
        other = f"{base}?{wrong}adapter={run.path}"
        with pytest.raises(InputError, match="add quantise=int8"):
            pa.evaluate(WORLD, model=other, run=tmp_path / "refused", **options)
    assert not (tmp_path / "refused").exists()


def test_training_goes_on_from_an_adapter_of_a_quantised_base(base: Path, run: pa.Run) -> None:
    name = f"{base}?adapter={run.path}"
    again = trained(name, base.parent / "again", quantise="int8")
    file = f"adapter/{WEIGHTS}"
    first, second = load_file(run.final / file), load_file(again.final / file)
    moved = max(float((second[name] - first[name]).abs().max()) for name in first)
    assert 0 < moved < max(float(tensor.abs().max()) for tensor in first.values())


def test_a_trained_run_may_be_quantised_for_evaluation(run: pa.Run, tmp_path: Path) -> None:
    name = f"{run.path}?quantise=nf4"
    found = pa.evaluate(WORLD, model=name, n=1, workers=0, progress=False, run=tmp_path / "eval")
    assert len(found.episodes) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["training.weights=full", "training.lora_rank="], "set training.weights=lora"),
        (["model.quantise=int4"], "int8"),
        (["rl.actor=process", "deterministic=false"], "needs the learner's process to act"),
        (["rl.critic.kind=separate", "rl.credit=gae"], "trains all weights of a copy"),
        (["model.name=smollm2-135m?quantise=int8"], "set model.quantise=int8"),
    ],
)
def test_what_a_quantised_base_cannot_do_is_refused(
    change: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(write_recipe(tmp_path, recipe("nf4")))
    if change[0].startswith("model.name"):
        file = "default"
    run = tmp_path / "run"
    assert main(["train", file, "--run", str(run), "--set", *change]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert not run.exists()


@pytest.mark.slow
def test_the_estimate_knows_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {}
    for format in ("", *FORMATS):
        change = [
            "training.weights=lora",
            "training.lora_rank=8",
            "training.top_layers=",
            f"model.quantise={format}",
        ]
        assert main(["train", "default", "--dry-run", "--json", "--set", *change]) == 0
        found = json.loads(capsys.readouterr().out)
        sizes[format] = found["memory_bytes"]["weights"], found["parameters"]
    assert len({parameters for _, parameters in sizes.values()}) == 1
    assert sizes["nf4"][0] < sizes["int8"][0] < sizes[""][0]
