"""Other architectures run by transformers' own code: acting, learning, adapters and checkpoints."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from palaestra.core.errors import InputError, RecipeError
from palaestra.core.model import Sampling
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.memory_budget import needs_of
from palaestra.learning.compute.weight_selection import adapters, top_layers
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import pg
from palaestra.models.local.engine import Engine
from palaestra.models.local.lora import add_lora, merged
from palaestra.models.local.model_types import MODEL_TYPES
from palaestra.models.local.networks import (
    blank_network,
    check_network,
    load_network,
    longest_context,
    runs_resident,
    save_network,
)
from palaestra.models.local.transformers_network import TransformersNetwork
from tests.learning.made import finish, gradients, learner_of, resident
from tests.models.local.test_architectures import (
    ROWS,
    SIZES,
    STEM,
    TRAINED,
    logits_of,
    off,
    tokens,
)

GPT2 = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 128}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
TYPES: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,  # learned positions, layers that are no nn.Linear
    "gpt_neox": {},  # attention beside the feed-forward half
    "opt": {"ffn_dim": 56, "word_embed_proj_dim": 48},  # a body within the body
    "cohere2": {"sliding_window": 6, "logit_scale": 0.3},  # windows, a scale of the logits
    "gemma": {"head_dim": 16},  # a scale of the embeddings
    "phi": {},  # biases of the head
    "starcoder2": {"sliding_window": 9},
    "olmoe": EXPERTS,
    "granitemoe": EXPERTS | {"num_local_experts": 4, "logits_scaling": 3.0},
    "nemotron": {"partial_rotary_factor": 0.5},
}


def made(name: str, **changed: Any) -> Any:
    """Return transformers' model of a type, small, with weights at random."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **{**SIZES, **TYPES.get(name, {}), **changed})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


class Pair(NamedTuple):
    """One network, theirs and ours, and the folder that theirs was saved to."""

    theirs: Any
    ours: TransformersNetwork
    folder: Path


@pytest.fixture(scope="module", params=list(TYPES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    theirs = made(request.param)
    theirs.save_pretrained(folder)
    assert not runs_resident(folder)
    ours = load_network(folder, torch.float32)
    assert isinstance(ours, TransformersNetwork)
    return Pair(theirs, ours, folder)


@torch.no_grad()
def test_logits_are_those_of_transformers(pair: Pair) -> None:
    for row, ours in zip(ROWS, logits_of(pair.ours, ROWS), strict=True):
        theirs = pair.theirs(torch.tensor([row])).logits[0]
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_greedy_replies_are_those_of_transformers(pair: Pair) -> None:
    engine = Engine(
        pair.ours, frozenset(), slots=4, context=64, block=4, memory=2**22, step_tokens=16
    )
    forks = [STEM, ROWS[0][:31], [*STEM, 5], [*STEM, 6, 7], ROWS[0][:31], tokens(3, 5)]
    for prompts in (forks, [[*forks[1], 9, 9]]):  # the second finds its prefix in the cache
        for request in finish(engine, [engine.submit(p, Sampling(0.0, 12), 0) for p in prompts]):
            whole = torch.tensor([[*request.tokens, *request.completion]])
            theirs = pair.theirs(whole).logits[0, len(request.tokens) - 1 : -1].argmax(dim=-1)
            assert request.completion == theirs.tolist()
            assert len(request.completion) == 12


def their_gradients(theirs: Any) -> dict[str, Tensor]:
    """Return transformers' gradient of the rows' loss, row by row."""
    theirs.zero_grad()
    for row in TRAINED:
        every = (
            theirs(torch.tensor([row.tokens]), use_cache=False).logits[0, :-1].log_softmax(dim=-1)
        )
        lp = every.gather(1, torch.tensor(row.tokens[1:])[:, None]).squeeze(1)
        factor = torch.tensor(row.advantage[1:]) * torch.tensor(row.weight[1:])
        (-(lp * factor)[torch.tensor(row.mask[1:])]).sum().backward()
    return {
        f"model.{name}": torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in theirs.named_parameters()
    }


@pytest.mark.parametrize("most", [10_000, 30])
def test_gradients_are_those_of_transformers(pair: Pair, most: int) -> None:
    learner = learner_of(copy.deepcopy(pair.ours), micro_tokens=most)
    found = gradients(learner, TRAINED, pg)
    wanted = their_gradients(pair.theirs)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        if float(gradient.abs().max()) > 1e-7:
            assert off(found[name], gradient) <= 1e-4, name


def test_the_upper_layers_can_be_trained_alone(pair: Pair) -> None:
    network = copy.deepcopy(pair.ours)
    chosen = top_layers(network, 1)
    learner = Learner(resident(network), chosen, Optimisation(1e-3, clip_norm=1e9))
    found, whole = gradients(learner, TRAINED, pg), their_gradients(pair.theirs)
    assert found
    assert all(network.layer_of(name) in (2, 3) for name in found)
    for name, gradient in found.items():
        if float(whole[name].abs().max()) > 1e-7:
            assert off(gradient, whole[name]) <= 1e-4, name


def test_adapters_get_the_gradients_that_their_weights_give_them(
    pair: Pair, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    network = copy.deepcopy(pair.ours)
    add_lora(network, 3, seed=1)
    chosen = adapters(network)
    assert chosen.parameters
    with torch.no_grad():
        for name, parameter in chosen.parameters.items():
            if "lora_B" in name:  # else the other half would have no gradient
                parameter.normal_(std=0.05)
    start = {name: p.detach().clone() for name, p in chosen.parameters.items()}
    save_network(merged(network), tmp_path)
    load: Any = AutoModelForCausalLM.from_pretrained
    theirs = load(tmp_path, dtype=torch.float32, attn_implementation="eager")
    whole = their_gradients(theirs)
    learner = Learner(resident(network), chosen, Optimisation(1e-3, clip_norm=1e9))
    found = gradients(learner, TRAINED, pg)
    for name, b in start.items():
        if "lora_B" not in name:
            continue
        place = name.replace(".lora_B.default", ".weight")
        of_weight = whole[place]
        layer = theirs.get_submodule(place.removeprefix("model.").rpartition(".")[0])
        if not isinstance(layer, nn.Linear):  # stored the other way round
            of_weight = of_weight.T
        a = start[name.replace("lora_B", "lora_A")]
        wanted = 2.0 * of_weight @ a.T  # alpha over rank
        assert b.shape == wanted.shape
        if float(wanted.abs().max()) > 1e-7:
            assert off(found[name], wanted) <= 1e-4, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_saved_is_what_was_read(pair: Pair, tmp_path: Path, dtype: torch.dtype) -> None:
    from transformers import AutoModelForCausalLM

    load: Any = AutoModelForCausalLM.from_pretrained
    load(pair.folder, dtype=dtype).save_pretrained(tmp_path / "theirs")
    save_network(load_network(tmp_path / "theirs", dtype), tmp_path / "ours")
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    left, right = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "ours")
    )
    assert left == right


def test_its_memory_can_be_planned_without_weights(pair: Pair) -> None:
    network, ours = blank_network(pair.folder, torch.bfloat16), copy.deepcopy(pair.ours).bfloat16()
    assert network.device.type == "meta"
    assert network.config == ours.config
    planned = needs_of(network, dict(network.named_parameters()))
    taken = needs_of(ours, dict(ours.named_parameters()))
    assert (planned.optimiser, planned.fixed) == (taken.optimiser, taken.fixed)
    assert planned.per_token == pytest.approx(taken.per_token, rel=0.1)
    assert longest_context(pair.folder) == 128


def test_a_known_type_runs_either_way_and_alike(tmp_path: Path) -> None:
    made("llama").save_pretrained(tmp_path)
    assert runs_resident(tmp_path)
    ours, theirs = (
        load_network(tmp_path, torch.float32, "resident"),
        load_network(tmp_path, torch.float32, "transformers"),
    )
    assert not ours.whole
    assert theirs.whole
    with torch.no_grad():
        for a, b in zip(logits_of(ours, ROWS), logits_of(theirs, ROWS), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_a_type_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "abacus"}')
    with pytest.raises(InputError, match="of type 'abacus', which this version of transformers"):
        check_network(tmp_path)


def test_a_trait_that_is_not_known_is_not_left_to_transformers(tmp_path: Path) -> None:
    made("llama").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"attention_multiplier": 0.1}))
    with pytest.raises(InputError, match="attention_multiplier"):
        check_network(tmp_path)
    check_network(tmp_path, "transformers")


def test_a_model_that_looks_like_others_is_tried_before_it_is_believed() -> None:
    model = made("phi")

    def shift(module: nn.Module, given: Any, found: Any) -> Any:  # what a convolution does
        hidden = found[0] if isinstance(found, tuple) else found
        mixed = hidden + hidden.roll(1, dims=1)
        return (mixed, *found[1:]) if isinstance(found, tuple) else mixed

    model.model.layers[0].register_forward_hook(shift)
    with pytest.raises(InputError, match="operations across tokens besides plain attention"):
        TransformersNetwork(model, "mine")


def test_layers_that_attend_twice_are_not_given_one_place_in_the_cache() -> None:
    with pytest.raises(InputError, match="layers that attend more than once"):
        TransformersNetwork(made("diffllama"), "mine")


def test_the_recipe_key_goes_with_a_model_of_its_own() -> None:
    from palaestra.training.recipe import load

    assert load("default", ["model.backend=transformers"]).model.backend == "transformers"
    with pytest.raises(RecipeError, match="no effect on the tiny transformer"):
        load("quick", ["model.backend=transformers"])
    assert "gpt_neox" not in MODEL_TYPES
