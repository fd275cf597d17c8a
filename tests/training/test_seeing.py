"""A tiny model that sees, end to end: trained on pictures, recorded, resumed, evaluated."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from palaestra.cli.main import main
from palaestra.core.episode import Episode
from palaestra.learning.data.rows import rows_of
from palaestra.models.local.image_reader import image_reader
from palaestra.models.local.networks import load_network
from palaestra.models.local.seeing_network import SeeingNetwork
from palaestra.models.local.tiny_seeing import tiny_seeing
from palaestra.store.run_folder import RunFolder
from tests.training.runs import (
    command,
    environment,
    in_this_process,
    palaestra,
    recorded_episodes,
    weights_hash,
    write_recipe,
)

WORLD = "babyai/GoToObjS4?observation=pixels"
RECIPE = f"""
deterministic = true
concurrency = 8
checkpoint_every = 1

[environment]
id = "{WORLD}"
workers = 0

[model]
name = "tiny"
context = 256

[model.tiny]
layers = 2
width = 64

[model.tiny.vision]
patch = 16
merge = 7
layers = 1
width = 32

[agent]
max_tokens = 4

[imitation]
demonstrations = 8
epochs = 2
batch = 8
learning_rate = 3e-3

[rl]
steps = 2
tasks = 2
group = 2

[evaluation]
tasks = 3
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeing")
    in_this_process("train", write_recipe(folder, RECIPE), "--run", folder / "run", "--json")
    return folder / "run"


def episodes(run: Path, phase: str) -> list[Episode]:
    with RunFolder.read(run) as opened:
        return list(opened.database.episodes(phase))


@pytest.mark.slow
def test_the_record_says_which_image_stands_where_and_holds_its_pixels_once(run: Path) -> None:
    token = image_reader(run / "final").token
    shown: set[str] = set()
    for episode in episodes(run, "rl/1"):
        for call in episode.calls:
            assert [m for message in call.messages for m in message.images] == [
                span.image for span in call.images
            ]
            for span in call.images:
                stands = call.prompt[span.start : span.stop]
                assert set(stands) == {token}
                shown.add(span.image.sha256)
            assert call.prompt.count(token) == sum(s.stop - s.start for s in call.images)
        seen = [episode.observation, *(step.transition.observation for step in episode.steps)]
        shown |= {image.sha256 for one in seen if one is not None for image in one.images}
    with RunFolder.read(run) as opened:
        found = opened.database._connection.execute("SELECT sha256, data FROM blob").fetchall()
    assert shown <= {name for name, _ in found}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in found)


def test_no_token_of_an_image_is_trained(run: Path) -> None:
    token = image_reader(run / "final").token
    found = [row for e in episodes(run, "demonstrations") for row in rows_of(e, "expert")]
    assert found
    for row in found:
        images = {at for span in row.images for at in range(span.start, span.stop)}
        assert images == {at for at, one in enumerate(row.tokens) if one == token}
        assert not any(row.mask[at] for at in images)


def test_the_whole_model_has_learned(run: Path) -> None:
    before = dict(tiny_seeing(run / "vocabulary", seed=1).named_parameters())
    network = load_network(run / "final", torch.float32)
    assert isinstance(network, SeeingNetwork)
    moved = {name for name, p in network.named_parameters() if not torch.equal(p, before[name])}
    assert any("vision_model" in name for name in moved)
    assert any("connector" in name for name in moved)
    assert any("text_model" in name for name in moved)


def test_what_was_trained_is_evaluated_by_the_command_line(run: Path, tmp_path: Path) -> None:
    given = ["eval", "--env", WORLD, "--model", str(run / "final"), "-n", "3"]
    assert main([*given, "--max-tokens", "4", "--run", str(tmp_path / "eval")]) == 0
    found = episodes(tmp_path / "eval", "eval/test")
    assert len(found) == 3
    assert all(call.images for episode in found for call in episode.calls[:1])


@pytest.mark.slow
def test_a_killed_run_ends_as_if_undisturbed(run: Path, tmp_path: Path) -> None:
    recipe, other = write_recipe(tmp_path, RECIPE), tmp_path / "run"
    process = subprocess.Popen(
        command("train", recipe, "--run", other),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not list(other.glob("checkpoints/*rl-*1")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    palaestra("train", "--resume", other, "--json")
    assert weights_hash(other) == weights_hash(run)
    assert recorded_episodes(other) == recorded_episodes(run)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["model.tiny.vision.patch=15"], "no multiple of patch"),
        (["agent.name=refine"], "does not pass them to its model"),
        (["model.name=smollm2-135m", "model.tiny=null"], "reads text only"),
        (["rl.actor=process", "deterministic=false"], "takes tokens only"),
    ],
)
def test_what_cannot_see_is_refused_before_anything_starts(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(tmp_path, RECIPE)
    if "model.tiny=null" in given:
        text = RECIPE.partition("[model.tiny]")[0] + "[agent]" + RECIPE.partition("[agent]")[2]
        recipe, given = write_recipe(tmp_path, text), given[:1]
    assert main(["train", str(recipe), "--set", *given, "--run", str(tmp_path / "run")]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
