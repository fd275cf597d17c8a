"""A `config.json` becomes a table of traits, or is refused; nothing in it is ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.errors import InputError
from palaestra.models.local.architecture import Rotary, Scaling
from palaestra.models.local.model_types import MODEL_TYPES, read_config, write_config
from tests.learning.made import grouped

PLAIN = {
    "vocab_size": 24, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip


def read(folder: Path, model_type: str = "llama", **keys: Any) -> Any:
    data = PLAIN | {"model_type": model_type} | keys
    (folder / "config.json").write_text(json.dumps(data))
    return read_config(folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "mamba2"}, "mamba2"),
        ({"rope_scaling": {"rope_type": "mrope", "mrope_section": [1, 2]}}, "mrope"),
        ({"rope_parameters": {"rope_type": "default", "rotary_dim": 4}}, "rotary_dim"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2, "alpha": 3}}, "alpha"),
        ({"hidden_act": "xielu"}, "xielu"),
        ({"quantization_config": {"quant_method": "fp8"}}, "weights quantised by fp8"),
        ({"attention_multiplier": 0.1}, "attention_multiplier"),
        ({"sliding_window": 64}, "sliding_window"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "bidirectional"),
        ({"model_type": "qwen3", "layer_types": ["linear_attention"] * 4}, "linear_attention"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"full_attn_mod": 2}, "full_attn_mod"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError, match=named) as error:
        read(tmp_path, **change)
    assert str(tmp_path) in str(error.value)
    assert str(error.value).count(". ") == 0  # one sentence


@pytest.mark.parametrize("text", ["", "[]", '{"model_type": "lla'])
def test_a_config_that_is_cut_off_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match="not a JSON object"):
        read_config(tmp_path)


def test_a_switch_that_is_off_and_keys_that_change_nothing_are_no_reason_to_refuse(
    tmp_path: Path,
) -> None:
    plain = read(tmp_path)
    assert read(tmp_path, full_attn_mod=1) == plain
    assert read(tmp_path, _model_name_or_path="a name from a GGUF file") == plain
    assert read(tmp_path, use_alibi=False, quantization_config=None, eos_token_id=7) == plain


def test_both_places_of_rope_theta_are_read(tmp_path: Path) -> None:
    for change in ({"rope_parameters": {"rope_theta": 5e5}}, {"rope_theta": 5e5}):
        assert read(tmp_path, **change).layers[0].rotary.theta == 5e5


def test_a_new_network_is_written_as_a_llama(tmp_path: Path) -> None:
    config = grouped().config
    write_config(config, tmp_path)
    assert read_config(tmp_path) == config


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_type_can_be_read_with_its_defaults(tmp_path: Path, model_type: str) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2}
    keys = experts if MODEL_TYPES[model_type].mixture else {}
    config = read(tmp_path, model_type, **keys)
    assert len(config.layers) == 4
    assert all((t.experts is not None) == bool(keys) for t in config.layers)


def test_gemma3s_older_words_mean_two_bases_and_a_pattern(tmp_path: Path) -> None:
    config = read(
        tmp_path, "gemma3_text", sliding_window=16, sliding_window_pattern=2, rope_theta=1e6,
        rope_local_base_freq=1e4, rope_scaling={"rope_type": "linear", "factor": 8.0},
    )  # fmt: skip
    every = Rotary(theta=1e6, scaling=Scaling.LINEAR, factor=8.0, original=128)
    local = Rotary(theta=1e4)
    assert [t.window for t in config.layers] == [16, None, 16, None]
    assert [t.rotary for t in config.layers] == [local, every, local, every]


def test_olmo3s_layers_with_a_window_have_no_scaled_positions(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16}
    config = read(tmp_path, "olmo3", rope_theta=5e5, rope_scaling=scaling)
    kinds = [t.rotary.scaling for t in config.layers]
    assert kinds == [Scaling.NONE] * 3 + [Scaling.YARN]
    assert config.layers[3].rotary.original == 16


def test_qwens_windows_need_a_switch(tmp_path: Path) -> None:
    keys = {"sliding_window": 16, "max_window_layers": 2}
    assert [t.window for t in read(tmp_path, "qwen2", **keys).layers] == [None] * 4
    on = read(tmp_path, "qwen2", use_sliding_window=True, **keys)
    assert [t.window for t in on.layers] == [None, None, 16, 16]


def test_mistrals_null_window_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, "mistral").layers[0].window == 4096
    assert read(tmp_path, "mistral", sliding_window=None).layers[0].window is None


def test_smollm3_leaves_positions_out_of_every_fourth_layer(tmp_path: Path) -> None:
    shares = [t.rotary.share for t in read(tmp_path, "smollm3").layers]
    assert shares == [1.0, 1.0, 1.0, 0.0]
