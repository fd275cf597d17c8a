"""The files of a checkpoint: shards, damage, templates, and how much memory loading takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import user
from palaestra.models.local.checkpoint_files import INDEX
from palaestra.models.local.checkpoint_format import read_network
from palaestra.models.local.weights import obtain
from palaestra.models.registry import renderer_of
from tests.chosen import mostly_slow
from tests.models.local.checkpoints import same_weights, split, write_checkpoint

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shards_are_read_as_one_file_is(tmp_path: Path, dtype: torch.dtype) -> None:
    network = write_checkpoint(tmp_path)
    split(tmp_path, 3)
    assert same_weights(read_network(tmp_path, dtype), network.to(dtype))


def test_weights_beside_the_model_are_not_its_weights(tmp_path: Path) -> None:
    network = write_checkpoint(tmp_path)
    split(tmp_path)
    (tmp_path / "consolidated.safetensors").write_bytes(b"another layout, not read")
    obtain(str(tmp_path), print)
    assert same_weights(read_network(tmp_path, torch.float32), network)


def cut(folder: Path) -> None:
    file = folder / "model-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def cut_header(folder: Path) -> None:
    file = folder / "model-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:20])


def remove(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").unlink()


def expect_more(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["model.more.weight"] = "model-00001-of-00002.safetensors"
    (folder / INDEX).write_text(json.dumps(index))


def garble(folder: Path) -> None:
    (folder / INDEX).write_text('{"weight_map": [')


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, r"00002-of-00002\.safetensors' is truncated or damaged .*; download or save it"),
        (cut_header, r"00002-of-00002\.safetensors' is truncated or damaged"),
        (remove, r"lacks model-00001-of-00002\.safetensors, one of its 2 shards; download"),
        (expect_more, r"lacks the tensor 'model\.more\.weight' that .* expects in it; download"),
        (garble, rf"{INDEX}' is damaged .*; download"),
    ],
)
def test_damage_is_one_sentence_before_anything_is_loaded(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    write_checkpoint(tmp_path)
    split(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=words):
        obtain(str(tmp_path), print)


def without_template(folder: Path) -> Path:
    """Write a checkpoint whose tokenizer does not speak ChatML, without a template."""
    write_checkpoint(folder)
    text = (folder / "tokenizer.json").read_text()
    text = text.replace("<|im_start|>", "<bos>").replace("<|im_end|>", "<eos>")
    (folder / "tokenizer.json").write_text(text)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_tokenizer_without_a_template_needs_one_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "cache"))
    folder = without_template(tmp_path / "model")
    with pytest.raises(InputError, match=r"no chat template; .*model\?template=FILE\.jinja"):
        obtain(str(folder), print)
    (tmp_path / "mine.jinja").write_text(TEMPLATE)
    name = f"{folder}?template={tmp_path / 'mine.jinja'}"
    found = obtain(name, print)
    renderer = renderer_of(found.folder)
    assert renderer.text(renderer.start([user("go")])) == "<user>go<assistant>"
    assert obtain(name, print) == found
    assert not (folder / "chat_template.jinja").exists()  # the user's folder stays as it is
    assert same_weights(
        read_network(found.folder, torch.float32), read_network(folder, torch.float32)
    )
    (tmp_path / "mine.jinja").write_text(TEMPLATE.replace("<eos>", "<eos>\n"))
    changed = renderer_of(obtain(name, print).folder)
    assert changed.text(changed.start([user("go")])) == "<user>go\n<assistant>"


def test_options_of_a_model_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    with pytest.raises(UnknownName, match="template"):
        obtain(f"{tmp_path}?templat=x", print)
    with pytest.raises(InputError, match=r"there is no file 'nowhere\.jinja'; give the path"):
        obtain(f"{tmp_path}?template=nowhere.jinja", print)


MEASURE = """
import resource, sys
from pathlib import Path
import torch
from palaestra.models.local.checkpoint_format import read_network

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

read_network(Path(sys.argv[1]), torch.float32)  # all that loading imports
before = peak()
network = read_network(Path(sys.argv[2]), getattr(torch, sys.argv[3]))
for parameter in network.parameters():
    parameter.data.sum()
print(peak() - before, sum(p.numel() * p.element_size() for p in network.parameters()))
"""


def loading(tiny: Path, large: Path, dtype: str) -> tuple[int, int]:
    """Return the bytes by which the peak of memory rises in loading, and those of the weights."""
    command = [sys.executable, "-c", MEASURE, str(tiny), str(large), dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rise, size = done.stdout.split()
    return int(rise), int(size)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", mostly_slow(["bfloat16", "float32"], "bfloat16"))
def test_weights_are_never_held_twice(tmp_path: Path, dtype: str) -> None:
    from palaestra.models.local.checkpoint_format import write_network
    from palaestra.models.local.tiny import tiny_network

    write_checkpoint(tmp_path / "tiny")
    sizes = {"layers": 8, "width": 512, "heads": 8, "context": 64, "seed": 0}
    write_network(tiny_network(8192, **sizes).to(torch.bfloat16), tmp_path / "large")
    split(tmp_path / "large")
    rise, size = loading(tmp_path / "tiny", tmp_path / "large", dtype)
    assert size > 50e6
    assert rise < 1.3 * size
