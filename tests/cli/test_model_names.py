"""Models by hub id, GGUF file and folder through the command line, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.models.local.adapter_files import write_adapter
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.models.local.lora import OWN, add_lora
from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.registry import REVISIONS
from palaestra.store.run_folder import RunFolder
from palaestra.training.policy_building import save_tokenizer
from tests.models.local.checkpoints import WORDS, split, write_checkpoint
from tests.models.local.gguf_files import random_model, write_gguf
from tests.models.local.hub_server import Hub, Repository, serving, use

WORLD, COMMIT, LATER = "probe/umbrella-4", "c" * 40, "d" * 40
QUICK = ("--workers", "0", "-n", "2", "--json")


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "ours"))
    return tmp_path / "runs"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub()) as found:
        use(found, tmp_path / "cache", monkeypatch)
        yield found


def evaluate(model: str, *more: str) -> int:
    return main(["eval", "--env", WORLD, "--model", model, *QUICK, *more])


def recorded(folder: Path) -> object:
    with RunFolder.read(folder) as run:
        return run.database.get(REVISIONS)


def test_a_run_records_the_commit_and_goes_on_with_it(
    hub: Hub, tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "o")
    write_checkpoint(tmp_path / "n", 1)
    hub.add("lab/small", tmp_path / "o", COMMIT)
    assert evaluate("lab/small", "--run", str(runs / "a")) == 0
    assert recorded(runs / "a") == {"lab/small": COMMIT}
    capsys.readouterr()
    assert main(["show", str(runs / "a")]) == 0
    assert f"model lab/small: revision {COMMIT}, runs by: resident" in capsys.readouterr().out
    folders = {COMMIT: tmp_path / "o", LATER: tmp_path / "n"}
    hub.models["lab/small"] = Repository(folders, {"main": LATER})
    hub.asked.clear()
    assert main(["eval", "--resume", str(runs / "a"), "--workers", "0"]) == 0
    assert evaluate("lab/small", "--run", str(runs / "b")) == 0
    assert recorded(runs / "b") == {"lab/small": LATER}
    assert evaluate("random", "--run", str(runs / "c")) == 0
    assert recorded(runs / "c") == {}


def spoilt(folder: Path, hub: Hub) -> str:
    write_checkpoint(folder)
    hub.add("lab/small", folder)
    hub.spoilt.add("model.safetensors")
    return "lab/small"


def truncated(folder: Path, hub: Hub) -> str:
    write_checkpoint(folder)
    shard = split(folder)[1]
    shard.write_bytes(shard.read_bytes()[:-8])
    return str(folder)


def gated(folder: Path, hub: Hub) -> str:
    write_checkpoint(folder)
    hub.add("lab/closed", folder, gated=True)
    return "lab/closed"


def untemplated(folder: Path, hub: Hub) -> str:
    write_checkpoint(folder)
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace("<|im_start|>", "<bos>"))
    (folder / "tokenizer_config.json").write_text("{}")
    return str(folder)


def foreign(folder: Path, hub: Hub) -> str:
    write_checkpoint(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "unheard_of"}))
    return str(folder)


def damaged_gguf(folder: Path, hub: Hub) -> str:
    folder.mkdir()
    write_gguf(random_model("llama"), folder / "small.gguf")
    content = (folder / "small.gguf").read_bytes()
    (folder / "small.gguf").write_bytes(content[: len(content) // 2])
    return str(folder / "small.gguf")


@pytest.mark.parametrize("command", ["eval", "train"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (spoilt, "does not match its SHA-256 on the hub"),
        (truncated, "is truncated or damaged"),
        (gated, "is gated; ask for access"),
        (lambda folder, hub: "lab/nothing", "no such model that you may read"),
        (lambda folder, hub: str(folder / "x.gguf"), "There is no GGUF file"),
        (damaged_gguf, "download it again"),
        (untemplated, "?template=FILE.jinja"),
        (foreign, "unheard_of"),
    ],
)
def test_what_cannot_be_used_ends_with_one_sentence_and_code_2_and_starts_nothing(
    hub: Hub,
    tmp_path: Path,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path, Hub], str],
    words: str,
    command: str,
) -> None:
    name = make(tmp_path / "theirs", hub)
    if command == "eval":
        code = evaluate(name)
    else:
        code = main(["train", "default", "--env", WORLD, "--set", f"model.name={name}"])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("palaestra: ")]
    assert code == 2
    assert len(said) == 1 and words in said[0]
    assert not list(runs.glob("*"))


@pytest.mark.parametrize(
    "keys",
    [
        ["model.name={name}"],
        ["model.name={base}", "training.adapters.planner.folder={adapter}", "agent.name=plan"],
        [
            "model.name={base}", "agent.name=plan", "training.adapters.planner.frozen=true",
            "training.adapters.planner.folder={adapter}",
        ],
        None,
    ],
    ids=["model", "role", "frozen role", "eval"],
)  # fmt: skip
def test_an_adapter_of_another_base_is_one_sentence_and_starts_nothing(
    keys: list[str] | None, tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, base, adapter = write_checkpoint(tmp_path / "o"), tmp_path / "n", tmp_path / "adapter"
    add_lora(network, 4, seed=1)
    write_adapter(network, OWN, adapter, "o")
    with torch.no_grad():
        other = write_checkpoint(base, 1)
        other.norm.mul_(1.5)
    write_network(other, base)
    name = f"{base}?adapter={adapter}"
    if keys is None:
        code = evaluate(name)
    else:
        lora = ["training.weights=lora", "training.lora_rank=4", "training.top_layers="]
        every = [*lora, "model.context=512", *keys]
        sets = [key.format(name=name, base=base, adapter=adapter) for key in every]
        options = [part for key in sets for part in ("--set", key)]
        code = main(["train", "default", "--env", WORLD, "--no-imitation", *options])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("palaestra: ")]
    assert code == 2
    assert len(said) == 1 and "was trained on another base" in said[0]
    assert not list(runs.glob("*"))


def test_a_context_longer_than_the_models_is_refused(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "model")  # of 512 tokens
    name = str(tmp_path / "model")
    given = ["--env", WORLD, "--set", f"model.name={name}", "model.context=1024"]
    assert main(["train", "default", *given]) == 2
    assert "model.context = 1024 is longer than the context" in capsys.readouterr().err
    assert not runs.exists()
    with pytest.raises(InputError, match=r"context = 513 is longer .*\(512 tokens\); set context"):
        pa.load(name, context=513, progress=False)
    assert pa.load(name, progress=False).model.engine.context == 512


@pytest.mark.slow
def test_training_starts_from_a_gguf_file_and_saves_safetensors(tmp_path: Path, runs: Path) -> None:
    write_gguf(random_model("llama"), tmp_path / "small.gguf")
    sections = {
        "model": {"name": str(tmp_path / "small.gguf"), "context": 512, "precision": "fp32"},
        "environment": {"workers": 0},
        "imitation": {"demonstrations": 2, "epochs": 1, "batch": 2},
        "training": {"weights": "full", "top_layers": None},
        "rl": {"steps": 1, "tasks": 2, "group": 2},
        "evaluation": {"tasks": 1},
        "minutes": None,
    }
    run = pa.train("default", env=WORLD, run=runs / "a", progress=False, **sections)
    trained = read_network(run.final, torch.float32)
    start = read_network(next((tmp_path / "ours" / "models").glob("small-*")), torch.float32)
    moved = (trained.embedding.weight - start.embedding.weight).abs().max()
    assert trained.config == start.config and 0 < moved < 0.1
    digest = hashlib.sha256((tmp_path / "small.gguf").read_bytes()).hexdigest()
    assert recorded(runs / "a") == {str(tmp_path / "small.gguf"): digest}


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights", [{"weights": "full"}, {"weights": "top", "top_layers": 1}, {"lora_rank": 4}]
)
def test_another_architecture_is_trained_and_evaluated_by_transformers_code(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str], weights: dict[str, Any]
) -> None:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    folder = tmp_path / "neox"
    vocabulary = learn_vocabulary(WORDS, 400)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = GPTNeoXConfig(
        vocab_size=vocabulary.get_vocab_size(),
        num_attention_heads=2,
        max_position_embeddings=512,
        **sizes,
    )
    start = GPTNeoXForCausalLM(config)
    start.save_pretrained(folder)
    save_tokenizer(vocabulary, folder)
    training = {"weights": "lora" if "lora_rank" in weights else "full", "top_layers": None}
    sections = {
        "model": {"name": str(folder), "context": 512, "precision": "fp32"},
        "environment": {"workers": 0},
        "imitation": {"demonstrations": 2, "epochs": 1, "batch": 2},
        "training": training | weights,
        "rl": {"steps": 2, "tasks": 2, "group": 2},
        "evaluation": {"tasks": 1},
        "minutes": None,
    }
    run = pa.train("default", env=WORLD, run=runs / "a", progress=False, **sections)
    trained = GPTNeoXForCausalLM.from_pretrained(run.final)
    moved = [
        name
        for name, tensor in trained.state_dict().items()
        if not torch.equal(tensor, start.state_dict()[name])
    ]
    assert moved
    if "top_layers" in weights:
        assert all(name.startswith(("gpt_neox.layers.1.", "gpt_neox.final")) for name in moved)
    assert evaluate(str(run.final), "--run", str(runs / "b")) == 0
    assert "runs by transformers' own code, slower" in capsys.readouterr().err


def test_a_local_folder_has_no_revision(tmp_path: Path, runs: Path) -> None:
    write_checkpoint(tmp_path / "model")
    assert evaluate(str(tmp_path / "model"), "--run", str(runs / "a")) == 0
    assert recorded(runs / "a") == {str(tmp_path / "model"): None}


IMAGES = "babyai/GoToLocalS5N2?observation=image"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["eval", "--model", "MODEL", "-n", "2"], "reads text only, and '.*' shows images"),
        (["eval", "--model", "expert", "--agent", "refine"], "does not pass them to its model"),
        (
            ["train", "quick"],
            "'tiny' reads text only, and '.*' shows images; set model.tiny.vision",
        ),
    ],
)
def test_images_for_a_model_that_reads_text_only_are_refused_before_anything_starts(
    given: list[str], words: str, tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "model")
    given = [str(tmp_path / "model") if one == "MODEL" else one for one in given]
    assert main([*given, "--env", IMAGES]) == 2
    assert re.search(words, capsys.readouterr().err.replace("\n", " "))
    assert not runs.exists()
