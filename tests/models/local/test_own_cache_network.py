"""Models that mix tokens in a manner of their own: their cache acts, their plain pass learns."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from palaestra.core.errors import InputError
from palaestra.core.model import Sampling
from palaestra.learning.compute.memory_budget import needs_of
from palaestra.learning.compute.packing import Micro, Trained, micro_batches
from palaestra.models.local.cache_states import size_of
from palaestra.models.local.choices import ChoiceTree
from palaestra.models.local.conversation_cache import Conversation, ConversationCache
from palaestra.models.local.engine import Engine, OnUpdate
from palaestra.models.local.networks import (
    blank_network,
    check_network,
    load_network,
    runs_resident,
    way_of,
)
from palaestra.models.local.own_cache_network import OwnCacheNetwork
from palaestra.models.local.request import Request
from tests.learning.made import finish, learner_of
from tests.models.local import test_transformers_network as shared
from tests.models.local.test_adapters import adapted
from tests.models.local.test_architectures import ROWS, STEM, tokens
from tests.models.local.test_transformers_network import Pair, made

GATED = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
MAMBA2 = {
    "mamba_n_heads": 8, "mamba_d_head": 12, "mamba_n_groups": 2, "mamba_d_state": 8,
    "mamba_chunk_size": 8,
}  # fmt: skip
TYPES: dict[str, dict[str, Any]] = {
    "qwen3_5_text": GATED,
    "qwen3_next": GATED
    | EXPERTS
    | {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "mamba": {},  # reads on token by token
    "mamba2": {"num_heads": 8, "head_dim": 12, "n_groups": 2, "state_size": 8, "chunk_size": 8},
    "jamba": EXPERTS
    | {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 1, "mamba_dt_rank": 4, "mamba_d_state": 8,
    },
    "falcon_h1": MAMBA2 | {"mamba_d_ssm": 96},  # attention beside recurrence
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
    "bloom": {"n_head": 4, "n_layer": 3},  # ALiBi
    "mpt": {"n_heads": 4, "n_layers": 3, "d_model": 48, "max_seq_len": 128},
    "rwkv": {"attention_hidden_size": 48},  # one conversation at a time
}  # fmt: skip


FAST = ("qwen3_5_text", "mamba", "jamba", "lfm2", "bloom", "rwkv")
PARAMETERS = [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in TYPES]


@pytest.fixture(scope="module", params=PARAMETERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    theirs = made(request.param, **TYPES[request.param])
    theirs.save_pretrained(folder)
    assert not runs_resident(folder)
    check_network(folder)
    ours = load_network(folder, torch.float32)
    assert isinstance(ours, OwnCacheNetwork)
    assert way_of(ours) == "transformers, its own cache"
    return Pair(theirs, ours, folder)


@pytest.fixture(scope="module")
def qwen() -> OwnCacheNetwork:
    return OwnCacheNetwork(made("qwen3_5_text", **TYPES["qwen3_5_text"]))


test_logits_are_those_of_transformers = shared.test_logits_are_those_of_transformers
test_gradients_are_those_of_transformers = shared.test_gradients_are_those_of_transformers
test_the_upper_layers_can_be_trained_alone = shared.test_the_upper_layers_can_be_trained_alone
test_adapters_get_their_gradients = (
    shared.test_adapters_get_the_gradients_that_their_weights_give_them
)
test_what_is_saved_is_what_was_read = shared.test_what_is_saved_is_what_was_read


def engine_of(network: OwnCacheNetwork, **options: Any) -> Engine:
    return Engine(network, frozenset(), **{"slots": 4, "context": 100, "memory": 2**24} | options)


def replies(engine: Engine, prompts: list[list[int]], count: int = 6) -> list[list[int]]:
    """Return sampled replies; the seed of each is its place."""
    requests = [
        engine.submit(prompt, Sampling(1.0, count), seed) for seed, prompt in enumerate(prompts)
    ]
    return [request.completion for request in finish(engine, requests)]


def generated(theirs: Any, prompt: list[int], count: int) -> list[int]:
    """Return transformers' own greedy reply."""
    theirs.generation_config.eos_token_id = None
    found = theirs.generate(
        torch.tensor([prompt]), max_new_tokens=count, do_sample=False, use_cache=True
    )
    return found[0, len(prompt) :].tolist()


def test_replies_of_several_turns_are_those_of_generate(pair: Pair) -> None:
    engine = engine_of(pair.ours)
    histories = [[*STEM], tokens(7, 5)]
    for turn in range(3):
        requests = [engine.submit(history, Sampling(0.0, 5), 0) for history in histories]
        for history, request in zip(histories, finish(engine, requests), strict=True):
            assert request.completion == generated(pair.theirs, history, 5)
            assert turn == 0 or request.cached > 0 or not pair.ours.reads_on
            history += [*request.completion, *tokens(4, turn)]


def test_forks_and_diverging_prompts_are_those_of_generate(pair: Pair) -> None:
    engine = engine_of(pair.ours)
    prompts = [STEM, STEM, [*STEM, 5], STEM[:6], [*STEM[:6], 9, 9], ROWS[0][:31]]
    for _ in range(2):  # the second time, from what is remembered
        requests = [engine.submit(prompt, Sampling(0.0, 4), 0) for prompt in prompts]
        for prompt, request in zip(prompts, finish(engine, requests), strict=True):
            assert request.completion == generated(pair.theirs, prompt, 4)
    assert request.cached == 30


def test_replies_do_not_depend_on_the_batch(pair: Pair) -> None:
    prompts = [STEM, tokens(5, 1), STEM, [*STEM, 7], tokens(9, 2)]
    together = replies(engine_of(pair.ours), prompts)
    for seed, prompt in enumerate(prompts):
        engine = engine_of(pair.ours)
        request = engine.submit(prompt, Sampling(1.0, 6), seed)
        assert finish(engine, [request])[0].completion == together[seed]


def test_the_learner_finds_the_log_probabilities_of_the_engine(pair: Pair) -> None:
    engine, learner = engine_of(pair.ours), learner_of(pair.ours)
    rows, recorded = [], []
    history = list(STEM)
    for turn in range(2):
        before = len(history)
        (request,) = finish(engine, [engine.submit(history, Sampling(1.0, 8), turn)])
        history += request.completion
        rows.append(Trained(list(history), [n >= before for n in range(len(history))]))
        recorded.append(request.logprobs)
        history += tokens(4, turn)
    for found, wanted in zip(learner.logprobs(rows), recorded, strict=True):
        assert found == pytest.approx(wanted, abs=1e-4)


def test_memory_is_a_budget(pair: Pair) -> None:
    network = pair.ours
    one = network.state_bytes + 30 * network.token_bytes
    engine = engine_of(network, memory=3 * one, context=30)
    cache = engine.cache
    assert isinstance(cache, ConversationCache)
    prompts = [tokens(11, seed) for seed in range(6)] + [STEM, STEM]
    requests = [engine.submit(p, Sampling(1.0, 9), seed) for seed, p in enumerate(prompts)]
    while engine.pending:
        engine.step()
        held = sum(
            size_of(r.past.state) for r in engine.running if isinstance(r.past, Conversation)
        )
        kept = sum(size_of(snapshot.state) for snapshot in cache._snapshots.values())
        assert held + kept <= 3 * one
    assert [r.completion for r in requests] == replies(engine_of(network), prompts, 9)
    assert cache._held == 0


def test_a_budget_below_one_conversation_is_refused(qwen: OwnCacheNetwork) -> None:
    with pytest.raises(InputError, match=r"does not hold the cache of one conversation of 100"):
        engine_of(qwen, memory=2**12)


def test_a_prompt_that_was_read_is_not_read_again(qwen: OwnCacheNetwork) -> None:
    engine = engine_of(qwen)
    first = replies(engine, [STEM], 5)[0]
    ran = engine.computed_tokens
    assert replies(engine, [STEM], 5)[0] == first
    assert engine.computed_tokens - ran == 5  # the prompt's last token, whose logits were kept
    ran = engine.computed_tokens
    replies(engine, [[*STEM, *first, 8, 8]], 1)
    assert engine.computed_tokens - ran == 3  # the reply's last token was never read


@pytest.mark.parametrize("on_update", list(OnUpdate))
def test_new_weights_read_everything_again(qwen: OwnCacheNetwork, on_update: OnUpdate) -> None:
    engine = engine_of(qwen, on_update=on_update)
    replies(engine, [STEM])
    running = engine.submit([*STEM, 4], Sampling(1.0, 12), 3)
    if on_update is not OnUpdate.DRAIN:
        engine.step()
        engine.step()
        assert len(running.completion) == 2
    engine.clear()
    assert engine.cache.known(STEM) == 0
    finish(engine, [running])
    assert engine.cache.known(STEM) == 0
    kept = engine.cache.known([*running.tokens, *running.completion])
    assert kept == (0 if on_update is OnUpdate.KEEP else len(STEM) + 12)
    assert running.completion == finish_alone(qwen, running)  # these weights are the old ones


def finish_alone(network: OwnCacheNetwork, request: Request) -> list[int]:
    engine = engine_of(network)
    again = engine.submit(request.tokens, request.sampling, request.seed)
    return finish(engine, [again])[0].completion


def test_adapters_reply_as_each_does_alone(qwen: OwnCacheNetwork) -> None:
    network = adapted(copy.deepcopy(qwen), "a", "b")
    assert isinstance(network, OwnCacheNetwork)
    names = ["a", "b", None, "a"]

    def ask(engine: Engine, number: int) -> Request:
        return engine.submit(ROWS[0], Sampling(1.0, 8), number, adapter=names[number])

    together = engine_of(network)
    found = finish(together, [ask(together, number) for number in range(len(names))])
    for number, request in enumerate(found):
        alone = engine_of(network)
        assert finish(alone, [ask(alone, number)])[0].completion == request.completion
    assert [request.cached for request in found] == [0, 0, 0, len(ROWS[0]) - 1]
    again = replies(engine_of(qwen), [ROWS[0]] * 3, 8)
    assert found[2].completion == again[2]
    assert found[0].completion != again[0]


def test_choices_hold(qwen: OwnCacheNetwork) -> None:
    engine = engine_of(qwen)
    tree = ChoiceTree([[5, 6], [7, 8, 9]])
    requests = [engine.submit(STEM, Sampling(1.0), seed, choices=tree) for seed in range(4)]
    engine.end_tokens = frozenset({6, 9})
    assert {tuple(r.completion) for r in finish(engine, requests)} <= {(5, 6), (7, 8, 9)}


def test_a_row_counts_whole(qwen: OwnCacheNetwork) -> None:
    rows = [Trained([*STEM, end], [False] * (len(STEM) + 1)) for end in (4, 5, 6)]
    assert Micro(rows, qwen).size == 3 * (len(STEM) + 1)
    assert [len(group) for group in micro_batches(rows, 2 * (len(STEM) + 1), qwen)] == [1, 2]


def test_its_memory_can_be_planned_without_weights(pair: Pair) -> None:
    network, ours = blank_network(pair.folder, torch.bfloat16), copy.deepcopy(pair.ours).bfloat16()
    assert network.device.type == "meta"
    network.context = ours.context = 64
    assert network.config == ours.config
    planned = needs_of(network, dict(network.named_parameters()))
    taken = needs_of(ours, dict(ours.named_parameters()))
    assert (planned.optimiser, planned.fixed) == (taken.optimiser, taken.fixed)
    assert 0.95 <= planned.per_token / taken.per_token <= 1.25  # without weights, a cache is kept


def test_scores_that_are_kept_count_for_rows_as_long_as_the_context() -> None:
    network = OwnCacheNetwork(made("bloom", **TYPES["bloom"]))
    needs = []
    for context in (128, 1024, 2048):
        network.context = context
        needs.append(needs_of(network, dict(network.named_parameters())).per_token)
    pairs = 3 * 4 * 4  # layers, heads, bytes: at least one number for each pair of tokens is kept
    assert needs[1] - needs[0] >= pairs * (1024 - 128)
    assert needs[2] - needs[1] == pytest.approx((needs[1] - needs[0]) * 1024 / 896, rel=0.05)


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("bert", {"is_decoder": False}, "a cache that does not compute what one pass computes"),
        (
            "recurrent_gemma",  # keeps what it remembers within its layers
            {"block_types": ["recurrent", "attention"], "head_dim": 12, "lru_width": 48},
            "code that fails with its own cache",
        ),
    ],
)
def test_what_its_own_code_cannot_do_is_refused(
    tmp_path: Path, name: str, changed: dict[str, Any], said: str
) -> None:
    made(name, **changed).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=said) as error:
        load_network(tmp_path, torch.float32)
    assert str(tmp_path) in str(error.value)
    assert "openai:MODEL@URL" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cache_that_forgets_is_noticed() -> None:
    model = made("qwen3_5_text", **TYPES["qwen3_5_text"])
    layer = model.model.layers[0].linear_attn
    own = layer.forward

    def forget(*given: Any, **options: Any) -> Any:
        options["cache_params"] = None
        return own(*given, **options)

    layer.forward = forget
    with pytest.raises(InputError, match="a cache that does not compute what one pass computes"):
        OwnCacheNetwork(model, "mine")


def test_weights_that_are_divided_for_narrow_numbers_are_saved_as_they_were(
    tmp_path: Path,
) -> None:
    model = made("rwkv", attention_hidden_size=48, rescale_every=2)
    model.save_pretrained(tmp_path / "theirs")
    network = load_network(tmp_path / "theirs", torch.float32)
    assert isinstance(network, OwnCacheNetwork)
    replies(engine_of(network), [STEM])
    network.save(tmp_path / "ours")
    theirs, ours = ((tmp_path / x / "model.safetensors").read_bytes() for x in ("theirs", "ours"))
    assert theirs == ours
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["rescale_every"] == 2


def test_a_pass_that_changes_weights_is_refused() -> None:
    model = made("bloom", **TYPES["bloom"])

    def halve(*given: Any) -> None:
        with torch.no_grad():
            model.transformer.h[1].mlp.dense_4h_to_h.weight.div_(2)

    model.register_forward_pre_hook(halve)
    model.transformer.register_forward_pre_hook(halve)
    with pytest.raises(InputError, match="a pass that changes its weights"):
        OwnCacheNetwork(model, "mine")


def test_a_model_that_only_reads_on_wrongly_reads_token_by_token() -> None:
    model = made("qwen3_5_text", **TYPES["qwen3_5_text"])
    layer = model.model.layers[0].linear_attn
    own = layer.forward

    def forget(hidden_states: Any, *given: Any, **options: Any) -> Any:
        state = options["cache_params"]
        if hidden_states.shape[1] > 1 and state is not None and state.has_previous_state(0):
            state.layers[0].recurrent_states[0].zero_()
        return own(hidden_states, *given, **options)

    layer.forward = forget
    network = OwnCacheNetwork(model, "mine")
    assert not network.reads_on
    engine = engine_of(network)
    (first,) = replies(engine, [STEM], 5)
    for more, cached in (([8, 8, 8], 0), ([8], len(STEM) + 4)):  # 0: one pass is faster
        history = [*STEM, *first, *more]
        request = engine.submit(history, Sampling(0.0, 5), 0)
        assert finish(engine, [request])[0].completion == generated(model, history, 5)
        assert request.cached == cached
