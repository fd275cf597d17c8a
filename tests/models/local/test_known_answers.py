"""Known answers: measured as a dense forward does, without a trace in anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import ContextTooLong, InputError
from palaestra.core.model import Sampling
from palaestra.models.local.lora import Factors, add_adapter, linear_layers, sizes_of
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import load_network
from palaestra.models.local.request import Request
from tests.learning.made import finish, grouped
from tests.models.local.test_engine import NETWORKS, SHARED, bytes_for, engine_of
from tests.models.local.test_own_cache_network import TYPES
from tests.models.local.test_transformers_network import made
from tests.models.plain import logprobs

TOKENS = st.lists(st.integers(0, 23), min_size=1, max_size=9)
Sampled = list[tuple[list[int], list[float], list[float]]]


def check(network: DecoderNetwork, request: Request) -> None:
    wanted = logprobs(network, request.tokens, list(request.answer))
    assert request.answer_logprobs == pytest.approx(wanted, abs=1e-4)


def sampled(requests: list[Request]) -> Sampled:
    return [(r.completion, r.logprobs, r.entropies) for r in requests]


@settings(max_examples=40)
@given(
    st.sampled_from(list(NETWORKS)),
    st.lists(st.tuples(st.integers(0, 20), TOKENS, TOKENS), min_size=1, max_size=6),
    st.integers(1, 5),  # slots
    st.integers(4, 40),  # tokens per step
    st.sampled_from([1, 4, 16]),  # tokens per block
)
def test_an_answer_has_the_log_probabilities_of_a_dense_forward_and_changes_no_bit(
    kind: str,
    parts: list[tuple[int, list[int], list[int]]],
    slots: int,
    step_tokens: int,
    block: int,
) -> None:
    network = NETWORKS[kind]
    options = {"slots": slots, "step_tokens": step_tokens, "context": 48, "block": block}
    prompts = [([*SHARED[:shared], *own], answer) for shared, own, answer in parts]
    both: list[Sampled] = []
    for probing in (False, True):
        engine = engine_of(network, **options)
        found: Sampled = []
        for _ in range(2):  # the second time, all prompts are known
            requests = [
                engine.submit(p, Sampling(1.0, 6), seed, answer=answer if probing else ())
                for seed, (p, answer) in enumerate(prompts)
            ]
            found += sampled(finish(engine, requests))
            for request in requests if probing else ():
                check(network, request)
        both.append(found)
    assert both[0] == both[1]


def test_turns_that_go_on_where_an_answer_was_tried_are_unchanged() -> None:
    network = grouped()
    both = []
    for answer in ((), (7, 8, 9, 10, 11, 12)):
        engine, history = engine_of(network), list(SHARED[:10])
        for seed in range(4):
            (request,) = finish(
                engine, [engine.submit(history, Sampling(1.0, 3), seed, answer=answer)]
            )
            history += [*request.completion, 3, 4]
        both.append(history)
    assert both[0] == both[1]


def test_answers_are_measured_where_memory_is_short_too() -> None:
    network = grouped()
    engine = engine_of(network, slots=6, memory=bytes_for(network, 64), context=48)
    requests = [
        engine.submit([seed + 1] * (20 + seed), Sampling(1.0, 8), seed, answer=list(range(12)))
        for seed in range(6)
    ]
    for request in finish(engine, requests):
        check(network, request)


def test_each_adapter_measures_its_own_answer() -> None:
    network = grouped()
    for number, name in enumerate(("a", "b")):
        factors = {}
        for place, layer in linear_layers(network).items():
            outputs, inputs = sizes_of(getattr(layer, "base_layer", layer))
            down = network.embedding.weight.new_full((2, inputs), 0.01 * (number + 1))
            factors[place] = Factors(down, down.new_full((outputs, 2), 0.05), 1.0)
        add_adapter(network, name, factors)
    engine = engine_of(network)
    names: list[str | None] = ["a", "b", None]
    requests = [
        engine.submit(SHARED, Sampling(1.0, 2), 1, adapter=name, answer=[5, 6]) for name in names
    ]
    finish(engine, requests)
    assert network.adapters is not None
    for request, name in zip(requests, names, strict=True):
        with network.adapters.used(name):
            check(network, request)
    assert len({tuple(request.answer_logprobs) for request in requests}) == 3


def test_an_answer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ContextTooLong, match="known answer of 9 in a context of 16"):
        engine_of(context=16).submit([1] * 8, Sampling(), 0, answer=[1] * 9)


def test_a_request_without_an_answer_measures_none() -> None:
    engine = engine_of()
    (request,) = finish(engine, [engine.submit(SHARED, Sampling(1.0, 2), 0)])
    assert request.answer_logprobs == []


def test_a_model_with_a_cache_of_its_own_measures_no_answer(tmp_path: Path) -> None:
    made("bloom", **TYPES["bloom"]).save_pretrained(tmp_path)
    engine = engine_of(load_network(tmp_path, torch.float32))
    assert not engine.measures
    with pytest.raises(InputError, match="cannot fork"):
        engine.submit([1, 2], Sampling(), 0, answer=[3])
