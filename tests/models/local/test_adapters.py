"""LoRA adapters side by side on one base: in files as peft has them, in batches, in evaluations."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import palaestra as pa
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.model import Prompt, Sampling
from palaestra.models.local.adapter_config import CONFIG, WEIGHTS
from palaestra.models.local.adapter_files import exportable, read_adapter, write_adapter
from palaestra.models.local.bases import LoadedBases
from palaestra.models.local.engine import Engine
from palaestra.models.local.lora import OWN, Factors, add_adapter, add_lora, linear_layers, sizes_of
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import load_network
from palaestra.models.local.weights import check_name, obtain
from tests.learning.made import finish
from tests.models.local import test_transformers_network as foreign
from tests.models.local.checkpoints import write_checkpoint
from tests.models.local.test_architectures import ROWS, STEM, logits_of, made, tokens

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS = {  # of peft, by model type: all layers, and some of those that are joined here
    "llama": [ALL, ["q_proj", "v_proj"], ["up_proj"]],
    "glm4": [["q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj"]],  # rows in another order
    "phi3": [["qkv_proj", "down_proj"]],
    "gpt2": [["c_attn", "c_fc"]],  # by transformers' own code; matrices the other way round
    "opt": [["q_proj", "fc1"]],
}
CASES = [(kind, targets) for kind, several in TARGETS.items() for targets in several]


def saved(kind: str, folder: Path) -> Any:
    """Save a small model of transformers; return it."""
    model = made(kind) if kind not in foreign.TYPES else foreign.made(kind)
    model.save_pretrained(folder)
    return model


def read(folder: Path) -> DecoderNetwork:
    """Return a network for sequences of up to 128 tokens, on which longrope depends."""
    network = load_network(folder, torch.float32)
    network.context = 128
    return network


def randomised(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.2, generator=generator)
    return model


def adapted(network: DecoderNetwork, *names: str) -> DecoderNetwork:
    """Add adapters of random numbers and of different ranks, one only to some layers."""
    for seed, name in enumerate(names):
        generator = torch.Generator().manual_seed(seed)
        factors = {}
        for place, layer in linear_layers(network).items():
            outputs, inputs = sizes_of(getattr(layer, "base_layer", layer))
            down = torch.randn(seed + 2, inputs, generator=generator) * 0.2
            up = torch.randn(outputs, seed + 2, generator=generator) * 0.2
            if seed != 1 or "out" not in place:
                factors[place] = Factors(down, up, 1.5 - seed / 2)
        add_adapter(network, name, factors)
    return network


@torch.no_grad()
def logits_by(network: DecoderNetwork, name: str | None) -> list[Tensor]:
    assert network.adapters is not None
    with network.adapters.used(name):
        return logits_of(network, ROWS)


# ── files ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "targets"), CASES)
@pytest.mark.parametrize("rank_stabilised", [False, True])
@torch.no_grad()
def test_an_adapter_of_peft_computes_here_what_it_computes_there(
    kind: str, targets: list[str], rank_stabilised: bool, tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=3, lora_alpha=5, target_modules=targets, use_rslora=rank_stabilised)
    theirs = randomised(get_peft_model(saved(kind, tmp_path / "base"), config), 1)
    theirs.save_pretrained(tmp_path / "adapter")
    ours = read(tmp_path / "base")
    before = logits_of(ours, ROWS)
    add_adapter(ours, "a", read_adapter(tmp_path / "adapter", ours))
    for row, found in zip(ROWS, logits_by(ours, "a"), strict=True):
        wanted = theirs(torch.tensor([row])).logits[0]
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    for found, plain in zip(logits_by(ours, None), before, strict=True):
        assert torch.equal(found, plain)


@pytest.mark.parametrize("kind", TARGETS)
@torch.no_grad()
def test_an_adapter_trained_here_is_one_of_peft(kind: str, tmp_path: Path) -> None:
    from peft import PeftModel

    theirs = saved(kind, tmp_path / "base")
    ours = read(tmp_path / "base")
    add_lora(ours, 3, seed=1)
    randomised(ours, 2)
    assert exportable(ours)
    write_adapter(ours, OWN, tmp_path / "adapter", "base")
    theirs = PeftModel.from_pretrained(theirs, str(tmp_path / "adapter")).eval()
    for row, found in zip(ROWS, logits_by(ours, OWN), strict=True):
        wanted = theirs(torch.tensor([row])).logits[0]
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    again = read(tmp_path / "base")
    add_adapter(again, OWN, read_adapter(tmp_path / "adapter", again))
    assert again.state_dict().keys() == ours.state_dict().keys()  # one rank for joined matrices
    for found, wanted in zip(logits_by(again, OWN), logits_by(ours, OWN), strict=True):
        assert torch.equal(found, wanted)


def test_adapters_of_experts_are_not_for_peft(tmp_path: Path) -> None:
    saved("mixtral", tmp_path)
    network = read(tmp_path)
    assert not exportable(network)


# ── batches ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["llama", "gemma2", "mixtral", "gpt2"])
def test_adapters_share_a_batch_and_reply_as_each_alone(kind: str, tmp_path: Path) -> None:
    """The same prompts for all: no adapter may use keys and values of another one."""
    saved(kind, tmp_path)
    plain = read(tmp_path)
    names = ("a", "b", "c")
    network = adapted(copy.deepcopy(plain), *names)
    prompts = [[*STEM, *STEM, 5], [*STEM, *STEM, 6, 7], tokens(3, 5)]
    asked = [(prompt, name) for prompt in prompts for name in (None, *names)]

    def replies(engine: Engine, asked: list[tuple[list[int], str | None]]) -> list[Any]:
        every = [engine.submit(p, Sampling(1.0, 10), 3, adapter=name) for p, name in asked]
        finish(engine, every)
        return [(one.completion, one.logprobs) for one in every]

    def engine_of(network: DecoderNetwork) -> Engine:
        return Engine(network, frozenset(), slots=16, context=64, block=4, memory=2**24)

    together = replies(engine_of(network), asked)
    assert network.adapters is not None and network.adapters.names == (OWN,)
    for name in names:
        alone = replies(engine_of(network), [(p, n) for p, n in asked if n == name])
        found = [reply for reply, (_, n) in zip(together, asked, strict=True) if n == name]
        for (one, its), (other, theirs) in zip(found, alone, strict=True):
            assert one == other
            assert its == pytest.approx(theirs, abs=1e-4)
    base = replies(engine_of(plain), [(p, OWN) for p, n in asked if n is None])
    found = [reply for reply, (_, n) in zip(together, asked, strict=True) if n is None]
    assert [one for one, _ in found] == [one for one, _ in base]
    assert len({str(one) for one, _ in together}) > len(prompts)  # adapters do change replies
    again = replies(engine_of(network), asked)
    assert [one for one, _ in again] == [one for one, _ in together]


def test_a_prefix_is_shared_within_an_adapter_only(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    network = adapted(read(tmp_path), "a", "b")
    engine = Engine(network, frozenset(), slots=4, context=64, block=4, memory=2**24)
    prompt = tokens(21, 7)
    cached = []
    for name in ("a", "b", None, OWN, "a", "b", None, OWN):
        (done,) = finish(engine, [engine.submit(prompt, Sampling(0.0, 2), 0, adapter=name)])
        cached.append(done.cached)
    assert cached == [0, 0, 0, 0, 20, 20, 20, 20]


# ── names ────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with two adapters beside it."""
    folder = tmp_path_factory.mktemp("base")
    write_checkpoint(folder / "base")
    for seed in (1, 2):
        network = load_network(folder / "base", torch.float32)
        add_lora(network, 2, seed)
        write_adapter(randomised(network, seed), OWN, folder / f"adapter-{seed}", "base")
    return folder


def test_adapters_are_loaded_on_one_base(base: Path) -> None:
    bases = LoadedBases()

    def load(name: str) -> Any:
        found = obtain(f"{base / 'base'}{name}", print)
        return bases.load(name, found, slots=4, context=64, keep_thoughts=False)

    first, second = load(f"?adapter={base / 'adapter-1'}"), load(f"?adapter={base / 'adapter-2'}")
    plain, again = load(""), load(f"?adapter={base / 'adapter-1'}")
    assert second.base is plain.base is again.base is first
    assert again.adapter == first.adapter != second.adapter

    def reply(model: Any) -> tuple[int, ...]:
        prompt = tuple(model.renderer.start([pa.user("go left")]))
        asked = Prompt([pa.user("go left")], prompt, Sampling(1.0, 8), 1)
        return tuple(asyncio.run(model.generate(asked)).tokens)

    replies = [reply(model) for model in (first, second, plain, again)]
    assert replies[0] == replies[3] and len(set(replies)) == 3
    assert reply(pa.load(base / "base", progress=False).model) == replies[2]


def test_adapters_of_equal_weights_and_other_scales_are_different_ones(
    base: Path, tmp_path: Path
) -> None:
    config = json.loads((base / "adapter-1" / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps(config | {"lora_alpha": 2 * config["lora_alpha"]}))
    (tmp_path / WEIGHTS).write_bytes((base / "adapter-1" / WEIGHTS).read_bytes())
    bases = LoadedBases()

    def load(adapter: Path) -> Any:
        found = obtain(f"{base / 'base'}?adapter={adapter}", print)
        return bases.load("model", found, slots=4, context=64, keep_thoughts=False)

    first, second = load(base / "adapter-1"), load(tmp_path)
    one, other = logits_by(first.network, first.adapter), logits_by(first.network, second.adapter)
    assert not torch.equal(one[0], other[0])


def test_roles_of_an_evaluation_have_adapters_of_one_base(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palaestra.models.local import bases

    read: list[Path] = []

    def counted(folder: Path, *rest: Any, **options: Any) -> DecoderNetwork:
        read.append(folder)
        return load_network(folder, *rest, **options)

    monkeypatch.setattr(bases, "load_network", counted)
    names = [f"{base / 'base'}?adapter={base / f'adapter-{seed}'}" for seed in (1, 2)]
    found = pa.evaluate(
        "probe/umbrella-4", agent="plan", model=names[0], roles={"planner": names[1]},
        n=2, workers=0, max_tokens=8, run=tmp_path / "run", progress=False,
    )  # fmt: skip
    assert read == [base / "base"]
    policies = {(call.role, call.policy) for one in found.episodes for call in one.calls}
    assert policies == {("planner", names[1]), ("agent", names[0])}


def test_a_policy_with_an_adapter_replies_as_its_merger(base: Path, tmp_path: Path) -> None:
    from palaestra.models.local.lora import merged
    from palaestra.models.local.networks import save_network

    network = load_network(base / "base", torch.float32)
    add_adapter(network, OWN, read_adapter(base / "adapter-1", network))
    save_network(merged(network), tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((base / "base" / file).read_bytes())
    one = pa.load(f"{base / 'base'}?adapter={base / 'adapter-1'}", progress=False)
    assert one.reply("go left", max_tokens=16) == pa.load(tmp_path, progress=False).reply(
        "go left", max_tokens=16
    )


# ── bad input ────────────────────────────────────────────────────────────────


def test_what_names_no_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    model = str(base / "base")
    with pytest.raises(InputError, match=r"names no adapter: there is no adapter_config\.json"):
        check_name(f"{model}?adapter={tmp_path}")
    with pytest.raises(UnknownName, match="adaptor"):
        check_name(f"{model}?adaptor={tmp_path}")
    both = f"adapter={base / 'adapter-1'}&adapter={base / 'adapter-2'}"
    with pytest.raises(InputError, match="names its adapter twice"):
        check_name(f"{model}?{both}")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"peft_type": "IA3"}, "is of type IA3; only LORA is supported"),
        ({"use_dora": True}, "has 'use_dora' = True, which is not supported"),
        ({"modules_to_save": ["lm_head"]}, r"has 'modules_to_save' = \['lm_head'\]"),
        ({"rank_pattern": {"q_proj": 8}}, "has 'rank_pattern'"),
        ({"bias": "all"}, "has 'bias' = 'all'"),
        ({"r": None}, r"adapter_config\.json cannot be read"),
    ],
)
def test_an_adapter_of_another_kind_is_refused_by_name(
    changed: dict[str, Any], message: str, base: Path, tmp_path: Path
) -> None:
    config = json.loads((base / "adapter-1" / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps(config | changed))
    weights = base / "adapter-1" / "adapter_model.safetensors"
    (tmp_path / weights.name).write_bytes(weights.read_bytes())
    with pytest.raises(InputError, match=message):
        check_name(f"{base / 'base'}?adapter={tmp_path}")


def test_an_adapter_of_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other", seed=1)
    with torch.no_grad():
        other.norm.mul_(1.5)
    with pytest.raises(InputError, match="was trained on another base"):
        read_adapter(base / "adapter-1", other)
    saved("llama", tmp_path / "wide")
    wide = read(tmp_path / "wide")
    file = base / "adapter-1"
    from safetensors.torch import load_file, save_file

    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / CONFIG).write_bytes((file / CONFIG).read_bytes())
    weights = "adapter_model.safetensors"
    save_file(load_file(file / weights), tmp_path / "foreign" / weights)  # as by others
    with pytest.raises(InputError, match=r"is of shape .* and the model's of"):
        read_adapter(tmp_path / "foreign", wide)
    (tmp_path / "foreign" / weights).write_bytes(b"cut")
    with pytest.raises(InputError, match="is truncated or damaged"):
        read_adapter(tmp_path / "foreign", wide)
