"""GGUF files as models: weights bit for bit, config, tokenizer, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from tokenizers import Tokenizer

from palaestra.core.errors import InputError
from palaestra.core.message import user
from palaestra.models.local.checkpoint_files import StoredTensors
from palaestra.models.local.checkpoint_format import read_network
from palaestra.models.local.gguf_architectures import config_of
from palaestra.models.local.gguf_conversion import convert
from palaestra.models.local.gguf_tokenizer import SPLITS, _split
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.local.weights import obtain, ready
from palaestra.models.registry import load_model, renderer_of
from tests.models.local.checkpoints import WORDS
from tests.models.local.gguf_files import random_model, write_gguf
from tests.models.local.test_network import ROWS, logits

READ = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1,
        Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]  # fmt: skip
FORMATS = {Kind.F32: torch.float32, Kind.F16: torch.float16}


@torch.no_grad()
def all_logits(network: DecoderNetwork) -> torch.Tensor:
    return torch.cat(logits(network, ROWS))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("tied", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_file_in_f32_gives_the_logits_of_the_original_bit_for_bit(
    tmp_path: Path, cache: Path, tied: bool
) -> None:
    model = random_model("llama", tie_word_embeddings=tied)
    model.save_pretrained(tmp_path / "original")
    write_gguf(model, tmp_path / "small.gguf")
    said: list[str] = []
    found = obtain(str(tmp_path / "small.gguf"), said.append)
    original = read_network(tmp_path / "original", torch.float32)
    converted = read_network(found.folder, torch.float32)
    assert converted.config == original.config
    assert torch.equal(all_logits(converted), all_logits(original))
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    theirs = model(tokens).logits[0]
    from transformers import AutoModelForCausalLM

    again = AutoModelForCausalLM.from_pretrained(found.folder, dtype=torch.float32)
    assert torch.equal(again(tokens).logits[0], theirs)
    assert said[0].startswith("converting small.gguf (once") and len(said) == 2
    assert obtain(str(tmp_path / "small.gguf"), said.append) == found and len(said) == 2
    assert ready(str(tmp_path / "small.gguf")) == found.folder


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.name)
def test_weights_are_those_of_the_file(tmp_path: Path, kind: Kind) -> None:
    model = random_model("llama", num_hidden_layers=1)
    expected = write_gguf(model, tmp_path / "small.gguf", kind)
    convert(tmp_path / "small.gguf", tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored.keys() == expected.keys()
    for name, tensor in expected.items():
        wanted = torch.float32 if tensor.dim() == 1 else FORMATS.get(kind, torch.bfloat16)
        assert stored[name].dtype == wanted
        assert torch.equal(stored[name], tensor.to(wanted)), name
        assert stored[name].float().isfinite().all()


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_transformers_reads_the_same_from_the_file_itself(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForCausalLM, GgufConfig

    write_gguf(random_model(name), tmp_path / "small.gguf", Kind.Q8_0)  # Qwen3: 4 heads of 128
    (tmp_path / "ours").mkdir()
    convert(tmp_path / "small.gguf", tmp_path / "ours")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.bfloat16)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file="small.gguf",
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    expected = theirs.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    for key, tensor in ours.state_dict().items():
        assert torch.equal(tensor, expected[key]), key
    for key in ("rms_norm_eps", "rope_parameters", "tie_word_embeddings"):
        assert getattr(ours.config, key) == pytest.approx(getattr(theirs.config, key))


def test_large_files_become_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestra.models.local import gguf_conversion

    monkeypatch.setattr(gguf_conversion, "SHARD", 500_000)
    expected = write_gguf(random_model("llama"), tmp_path / "small.gguf")
    convert(tmp_path / "small.gguf", tmp_path)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 2
    stored = StoredTensors(tmp_path)
    assert stored.keys() == expected.keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in expected.items())


def test_the_tokenizer_and_the_template_are_those_of_the_file(tmp_path: Path, cache: Path) -> None:
    write_gguf(random_model("llama"), tmp_path / "small.gguf")
    folder = obtain(str(tmp_path / "small.gguf"), print).folder
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs = learn_vocabulary(WORDS, 400)
    for text in (*WORDS, "  12\n 345 don't é\tx", "<|im_start|>user\ngo<|im_end|>\n"):
        assert ours.encode(text).ids == theirs.encode(text).ids
    renderer = renderer_of(folder)
    told = "".join(renderer.token_strings(renderer.start([user("go")])))
    assert told == "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
    stop = json.loads((folder / "generation_config.json").read_text())
    assert stop["eos_token_id"] in renderer.end_tokens


@pytest.mark.slow
def test_a_file_acts_as_a_model(tmp_path: Path, cache: Path) -> None:
    import asyncio

    from palaestra.agents.direct import DirectAgent
    from palaestra.core.model import Prompt, Sampling

    write_gguf(random_model("llama"), tmp_path / "small.gguf", Kind.Q8_0)
    name = str(tmp_path / "small.gguf")
    model = load_model(name, DirectAgent(), slots=1, context=2048, progress=print)
    tokens = tuple(model.renderer.start([user("go")]))
    reply = asyncio.run(model.generate(Prompt([user("go")], tokens, Sampling(max_tokens=4), 1)))
    assert len(reply.tokens) > 0 and reply.policy == name


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "a 1234", ["a", "Ġ1234"]),
        ("smollm", "a 1234", ["a", "Ġ", "1", "2", "3", "4"]),
        ("llama-bpe", "a 1234", ["a", "Ġ", "123", "4"]),
        ("qwen2", "a 1234", ["a", "Ġ", "1", "2", "3", "4"]),
        ("llama-bpe", "I'LL go\n\n!", ["I", "'LL", "Ġgo", "ĊĊ", "!"]),
    ],
)
def test_text_is_split_as_the_vocabulary_was_learned(
    name: str, text: str, words: list[str]
) -> None:
    tokenizer = learn_vocabulary(WORDS, 400)
    _split(tokenizer, SPLITS[name])
    assert [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == words


METADATA = {
    "general.architecture": "llama",
    "llama.context_length": 131072,
    "llama.embedding_length": 256,
    "llama.block_count": 2,
    "llama.feed_forward_length": 512,
    "llama.attention.head_count": 2,
    "llama.rope.freq_base": 500000.0,
}


def test_the_rotary_scaling_of_llama_3_is_found_in_its_divisors() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=2,
        head_dim=128,
        max_position_embeddings=131072,
        rope_parameters=scaling,
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 500000.0 ** (-np.arange(64) / 64)
    tensors = {"model.embed_tokens.weight": [400, 256]}
    found = config_of(METADATA, tensors, (plain / scaled.numpy()).astype(np.float32))
    assert found["rope_parameters"] == scaling
    assert config_of(METADATA, tensors, None)["rope_parameters"]["rope_type"] == "default"
    with pytest.raises(InputError, match="is not the rotary scaling of Llama 3"):
        config_of(METADATA, tensors, np.linspace(1, 4, 64))


def truncated(file: Path) -> None:
    write_gguf(random_model("llama"), file)
    file.write_bytes(file.read_bytes()[:-1000])


def cut_early(file: Path) -> None:
    write_gguf(random_model("llama"), file)
    file.write_bytes(file.read_bytes()[:500])


def with_experts(file: Path) -> None:
    write_gguf(random_model("llama"), file, more={"expert_used_count": 2.0})


def with_a_strange_split(file: Path) -> None:
    write_gguf(random_model("llama"), file, split="poro-chat")


def without_a_template(file: Path) -> None:
    model = random_model("llama")
    write_gguf(model, file, template=None)
    content = file.read_bytes()
    content = content.replace(b"<|im_start|>", b"<|start_it|>").replace(
        b"<|im_end|>", b"<|end_it|>"
    )
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (truncated, r"(incomplete|no readable GGUF file.*); download it again"),
        (cut_early, r"(incomplete|no readable GGUF file.*); download it again"),
        (with_experts, r"its key 'llama\.expert_used_count' = 2\.0 means a trait .* checkpoint"),
        (with_a_strange_split, "splits text as 'poro-chat', which is not known here; use"),
    ],
)
def test_what_cannot_be_converted_is_refused_in_one_sentence(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "small.gguf")
    with pytest.raises(InputError, match=words) as caught:
        convert(tmp_path / "small.gguf", tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.slow
def test_a_file_without_a_template_needs_one_of_the_users(tmp_path: Path, cache: Path) -> None:
    without_a_template(tmp_path / "small.gguf")
    with pytest.raises(InputError, match=r"no chat template; .*\?template=FILE\.jinja"):
        obtain(str(tmp_path / "small.gguf"), print)


def test_other_architectures_are_refused_by_name(tmp_path: Path, cache: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "x.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match="its architecture 'mamba' is not among those read"):
        obtain(str(tmp_path / "x.gguf"), print)  # through the process that converts
    (tmp_path / "x.gguf").write_bytes(b"PK, no GGUF file")
    with pytest.raises(InputError, match="is no GGUF file; download it again"):
        obtain(str(tmp_path / "x.gguf"), print)


@pytest.mark.slow
def test_a_file_that_changed_is_not_the_model_that_a_run_began_with(
    tmp_path: Path, cache: Path
) -> None:
    file = tmp_path / "small.gguf"
    write_gguf(random_model("llama"), file)
    began = obtain(str(file), print)
    write_gguf(random_model("llama", seed=1), file)
    with pytest.raises(InputError, match="is no longer the one that the run began with"):
        obtain(str(file), print, began.revision)
