"""The engine: what it says is what the weights say, whatever else it is doing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from palaestra.core.errors import ContextTooLong
from palaestra.core.model import Finish, Sampling
from palaestra.models.checkpoint_format import write_network
from palaestra.models.engine import Engine
from tests.learning.made import finish, grouped, tiny

GREEDY = Sampling(0.0, 12)
NO_END: frozenset[int] = frozenset()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    from transformers import LlamaForCausalLM

    folder = tmp_path_factory.mktemp("reference")
    write_network(grouped(), folder)
    return LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def engine_of(network=None, **options):
    return Engine(network or grouped(), NO_END, **{"slots": 4, "context": 128, **options})


def theirs(reference, prompt, count):
    """Greedy generation of transformers."""
    out = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


@torch.no_grad()
def check(reference, request):
    """Each token is the reference's first choice, with the reference's log-probability."""
    tokens = request.tokens + request.completion
    lp = torch.log_softmax(reference(torch.tensor([tokens])).logits[0], dim=-1)
    at = range(len(request.tokens) - 1, len(tokens) - 1)
    assert [int(lp[i].argmax()) for i in at] == request.completion
    wanted = [float(lp[i, t]) for i, t in zip(at, request.completion, strict=True)]
    assert request.logprobs == pytest.approx(wanted, abs=1e-4)


SHARED = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]


def test_greedy_generation_is_that_of_transformers(reference):
    prompts = [[5], [7, 8, 9], SHARED, [*SHARED, 5, 6], [*SHARED[:18], 3]]
    engine = engine_of(slots=8)
    requests = finish(engine, [engine.submit(p, GREEDY, 0) for p in prompts])
    for request in requests:
        assert request.completion == theirs(reference, request.tokens, 12)
        check(reference, request)


def test_a_conversation_goes_on_where_its_keys_and_values_lie(reference):
    engine = engine_of()
    first = finish(engine, [engine.submit([*SHARED, i], GREEDY, 0) for i in range(3)])
    for request in first:
        tokens = [*request.tokens, *request.completion, 1, 2]
        (second,) = finish(engine, [engine.submit(tokens, GREEDY, 0)])
        assert second.cached == len(tokens) - 3  # all but the last sample and the new tokens
        assert second.completion == theirs(reference, tokens, 12)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.lists(st.integers(0, 23), min_size=1, max_size=12)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 5),
    st.integers(1, 40),
    st.lists(st.integers(0, 7), max_size=6),
)
def test_batching_chunking_sharing_and_eviction_change_no_reply(
    reference, parts, slots, step_tokens, later
):
    engine = engine_of(slots=slots, step_tokens=step_tokens)
    sampling = Sampling(0.0, 5)
    requests = [engine.submit([*SHARED[:n], *own], sampling, 0) for n, own in parts]
    finish(engine, requests)
    # next turns, of which some fork the same past and some find it evicted
    turns = [
        engine.submit([*r.tokens, *r.completion, 1, i], sampling, 0)
        for i, r in enumerate(requests[k % len(requests)] for k in later)
    ]
    finish(engine, turns)
    for request in requests + turns:
        check(reference, request)
    assert engine.pending == 0
    assert not any(slot.busy for slot in engine.cache.slots)


def test_a_chunk_of_one_token_among_longer_ones_is_attended_rightly(reference):
    engine = engine_of(step_tokens=8)
    early = engine.submit([3], Sampling(0.0, 9), 0)
    engine.step()  # from now on `early` runs one token per step
    # 1 + 6 + 1 tokens: the last chunk is a prompt of many tokens cut to one
    requests = [
        early,
        engine.submit(SHARED[1:7], GREEDY, 0),
        engine.submit(SHARED[8:], GREEDY, 0),
    ]
    for request in finish(engine, requests):
        check(reference, request)


def test_a_shared_prefix_is_computed_once():
    engine = engine_of(slots=8)
    finish(engine, [engine.submit([*SHARED, i], Sampling(0.0, 1), 0) for i in range(6)])
    assert engine.computed_tokens == len(SHARED) + 6


def test_sampling_follows_the_softmax():
    network = tiny(8, seed=3)
    engine = engine_of(network, slots=128)
    prompt, n = [3, 4, 5], 2000
    requests = finish(engine, [engine.submit(prompt, Sampling(1.0, 1), s) for s in range(n)])
    chosen = torch.tensor([r.completion[0] for r in requests])
    lp = {r.completion[0]: r.logprobs[0] for r in requests}
    p = torch.zeros(8)
    for token, value in lp.items():
        p[token] = torch.tensor(value).exp()
    assert float(p.sum()) == pytest.approx(1, abs=0.02)
    assert float(p.max() / p[p > 0].min()) > 1.5  # a distribution worth testing
    expected = n * p[p > 0]
    counts = torch.bincount(chosen, minlength=8)[p > 0]
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < chi2.ppf(0.999, len(expected) - 1)


def test_equal_seeds_give_equal_replies_whatever_the_neighbours():
    alone = engine_of()
    (wanted,) = finish(alone, [alone.submit(SHARED, Sampling(1.0, 20), 7)])
    crowd = engine_of(slots=5, step_tokens=9)
    requests = [crowd.submit([i, *SHARED[i:]], Sampling(1.0, 30), i) for i in range(6)]
    crowd.step()
    requests.append(crowd.submit(SHARED, Sampling(1.0, 20), 7))
    found = finish(crowd, requests)[-1]
    assert found.completion == wanted.completion
    assert found.logprobs == pytest.approx(wanted.logprobs, abs=1e-5)
    other = engine_of()
    (different,) = finish(other, [other.submit(SHARED, Sampling(1.0, 20), 8)])
    assert different.completion != wanted.completion


def test_logprobs_are_taken_at_the_sampling_temperature():
    engine = engine_of()
    (request,) = finish(engine, [engine.submit([3, 4], Sampling(0.5, 1), 1)])
    greedy = engine_of()
    (first,) = finish(greedy, [greedy.submit([3, 4], Sampling(0.0, 1), 1)])
    if request.completion == first.completion:
        assert request.logprobs[0] > first.logprobs[0]  # colder is surer of its first choice


def test_a_reply_ends_at_an_end_token_at_its_limit_or_at_the_context():
    (token,) = finish(e := engine_of(), [e.submit([3, 4], Sampling(0.0, 1), 0)])[0].completion
    ending = Engine(grouped(), frozenset({token}), slots=1, context=128)
    (stopped,) = finish(ending, [ending.submit([3, 4], GREEDY, 0)])
    assert (stopped.finish, stopped.completion) == (Finish.STOP, [token])
    short = engine_of(context=10)
    full, limited = finish(
        short, [short.submit([3] * 8, GREEDY, 0), short.submit([3], Sampling(0.0, 2), 0)]
    )
    assert (full.finish, len(full.completion)) == (Finish.LENGTH, 2)
    assert (limited.finish, len(limited.completion)) == (Finish.LENGTH, 2)


def test_a_prompt_that_fills_the_context_is_refused():
    engine = engine_of(context=10)
    with pytest.raises(ContextTooLong, match="10 tokens"):
        engine.submit([3] * 10, GREEDY, 0)
    assert engine.pending == 0
    assert engine_of(context=999).context == 128  # no longer than the network's own


def test_cancelling_frees_the_slot_at_any_moment(reference):
    engine = engine_of(slots=1, step_tokens=8)
    running, waiting = (engine.submit(SHARED, GREEDY, 0) for _ in range(2))
    engine.step()  # `running` has read a part of its prompt
    engine.cancel(running)
    engine.cancel(waiting)
    engine.cancel(running)  # once more does no harm
    assert engine.pending == 0
    (request,) = finish(engine, [engine.submit(SHARED, GREEDY, 0)])
    check(reference, request)


def test_keys_and_values_of_old_weights_would_change_the_answer():
    network = grouped()
    stale, cleared = engine_of(network), engine_of(network)
    sampling = Sampling(0.0, 1)
    for engine in (stale, cleared):
        finish(engine, [engine.submit(SHARED, sampling, 0)])
    with torch.no_grad():
        network.blocks[0].qkv.weight.mul_(1.5)
    cleared.clear()
    fresh = engine_of(network)
    answers = [finish(e, [e.submit(SHARED, sampling, 0)])[0] for e in (stale, cleared, fresh)]
    assert answers[1].logprobs == pytest.approx(answers[2].logprobs, abs=1e-6)
    assert abs(answers[0].logprobs[0] - answers[2].logprobs[0]) > 1e-3
    assert (answers[0].cached, answers[1].cached) == (len(SHARED) - 1, 0)


def test_weights_cannot_change_in_the_middle_of_a_reply():
    engine = engine_of()
    engine.submit(SHARED, GREEDY, 0)
    engine.step()
    with pytest.raises(RuntimeError, match="while a reply was being sampled"):
        engine.clear()
