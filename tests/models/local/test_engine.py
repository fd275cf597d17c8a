"""The engine: replies depend only on the weights, whatever else runs."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from palaestra.core.errors import ContextTooLong, InputError
from palaestra.core.model import Finish, Sampling
from palaestra.models.local.architecture import LayerTraits, NetworkConfig
from palaestra.models.local.checkpoint_format import write_network
from palaestra.models.local.engine import Engine, OnUpdate
from palaestra.models.local.kernels.paged_attention import native_attention
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.schedule import AttainedService
from tests.learning.made import finish, grouped, tiny
from tests.models.plain import Past, choices, distributions, greedy, logprobs

GREEDY = Sampling(0.0, 12)
NO_END: frozenset[int] = frozenset()
SHARED = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]


def wide(**traits: Any) -> DecoderNetwork:
    """Return a network like `grouped`, with heads large enough for the compiled attention."""
    network = DecoderNetwork(
        NetworkConfig(
            vocab_size=24,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            **traits,
        )
    )
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        mean = 0.0 if parameter.dim() > 1 else 1.0
        torch.nn.init.normal_(parameter, mean=mean, std=0.2, generator=generator)
    return network


GROUPED, WIDE = grouped(), wide()
WINDOWS = (LayerTraits(window=7), LayerTraits())
GENERAL = wide(layers=WINDOWS, sinks=True, attention_softcap=2.0, attention_scale=0.4)
SOME = wide(layers=WINDOWS, attention_scale=0.4)  # the other layer is compiled
NETWORKS = {"tensors": GROUPED, "compiled": WIDE, "general": GENERAL, "a window": SOME}


def bytes_for(network: DecoderNetwork, tokens: int) -> int:
    config = network.config
    return 8 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * tokens


def engine_of(network=None, **options):
    return Engine(
        network or GROUPED,
        NO_END,
        **{"slots": 4, "context": 128, "block": 4, "memory": 2**24, **options},
    )


def check(network, request):
    """Check that each token is the plain network's most probable one, with its log-probability."""
    assert choices(network, request.tokens, request.completion) == request.completion
    wanted = logprobs(network, request.tokens, request.completion)
    assert request.logprobs == pytest.approx(wanted, abs=1e-4)


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    from transformers import LlamaForCausalLM

    folder = tmp_path_factory.mktemp("transformer")
    write_network(GROUPED, folder)
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def test_greedy_generation_is_that_of_transformers(transformer):
    prompts = [[5], [7, 8, 9], SHARED, [*SHARED, 5, 6]]
    engine = engine_of()
    for request in finish(engine, [engine.submit(p, GREEDY, 0) for p in prompts]):
        theirs = transformer.generate(
            torch.tensor([request.tokens]),
            attention_mask=torch.ones(1, len(request.tokens), dtype=torch.long),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert theirs[0].tolist() == [*request.tokens, *request.completion]


@pytest.mark.parametrize("kind", NETWORKS)
def test_greedy_generation_is_that_of_the_plain_network(kind):
    network = NETWORKS[kind]
    prompts = [[5], [7, 8, 9], SHARED, [*SHARED, 5, 6], [*SHARED[:18], 3]]
    engine = engine_of(network, slots=8)
    requests = finish(engine, [engine.submit(p, GREEDY, 0) for p in prompts])
    for request in requests:
        assert request.completion == greedy(network, request.tokens, 12)
        check(network, request)


def test_the_compiled_attention_is_at_work_where_it_can_be():
    if native_attention(16, 2, 4, torch.float32, torch.device("cpu")) is None:
        pytest.skip("no C compiler with OpenMP")
    assert engine_of(WIDE).forward.native is not None
    assert engine_of(GROUPED).forward.native is None  # heads of 8


@settings(max_examples=40)
@given(
    st.sampled_from(list(NETWORKS)),
    st.lists(
        st.tuples(st.integers(0, 20), st.lists(st.integers(0, 23), min_size=1, max_size=12)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 5),  # slots
    st.integers(1, 40),  # tokens per step
    st.integers(52, 140),  # tokens of memory: few enough for eviction and preemption
    st.sampled_from([1, 4, 16]),  # tokens per block
    st.sampled_from([None, 1, 8]),  # quantum; None is first come, first served
    st.lists(st.integers(0, 7), max_size=6),
)
def test_nothing_that_the_engine_does_changes_a_reply(
    kind, parts, slots, step_tokens, memory, block, quantum, later
):
    network = NETWORKS[kind]
    engine = engine_of(
        network,
        slots=slots,
        step_tokens=step_tokens,
        context=48,
        block=block,
        memory=bytes_for(network, max(memory, -(-48 // block) * block)),
        schedule=None if quantum is None else AttainedService(quantum, patience=2),
    )
    sampling = Sampling(0.0, 5)
    requests = [
        engine.submit([*SHARED[:n], *own], sampling, 0, program=i % 3)
        for i, (n, own) in enumerate(parts)
    ]
    finish(engine, requests)
    # next turns: some fork the same past, some find it evicted
    turns = [
        engine.submit([*r.tokens, *r.completion, 1, i], sampling, 0, program=i % 2)
        for i, r in enumerate(requests[k % len(requests)] for k in later)
    ]
    finish(engine, turns)
    for request in requests + turns:
        check(network, request)
    assert engine.pending == 0
    assert engine.cache.available == engine.cache.blocks


# ── what is computed ─────────────────────────────────────────────────────────


def test_a_conversation_goes_on_where_its_keys_and_values_lie():
    engine = engine_of()
    first = finish(engine, [engine.submit([*SHARED, i], GREEDY, 0) for i in range(3)])
    for request in first:
        tokens = [*request.tokens, *request.completion, 1, 2]
        (second,) = finish(engine, [engine.submit(tokens, GREEDY, 0)])
        assert second.cached == len(tokens) - 3  # all but the last sample and the new tokens
        check(GROUPED, second)


def test_forks_of_a_session_share_its_past():
    engine = engine_of(slots=8)
    (trunk,) = finish(engine, [engine.submit(SHARED, GREEDY, 0)])
    past = [*trunk.tokens, *trunk.completion]
    before, free = engine.computed_tokens, engine.cache.available
    forks = [engine.submit([*past, i], Sampling(0.0, 3), 0) for i in range(6)]
    engine.step()
    # each one runs the last token of the trunk, which was sampled but never run, and its own
    assert engine.computed_tokens - before == 2 * len(forks)
    assert free - engine.cache.available == len(past) // 4 + len(forks)
    for fork in finish(engine, forks):
        check(GROUPED, fork)


def test_a_shared_prefix_is_computed_once():
    engine = engine_of(slots=8)
    finish(engine, [engine.submit([*SHARED, i], Sampling(0.0, 1), 0) for i in range(6)])
    assert engine.computed_tokens == len(SHARED) + 6


def test_a_chunk_of_one_token_among_longer_ones_is_attended_rightly():
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
        check(GROUPED, request)


# ── memory ───────────────────────────────────────────────────────────────────


def test_requests_give_way_when_memory_runs_short_and_go_on_later():
    engine = engine_of(context=40, memory=bytes_for(GROUPED, 60))
    requests = [engine.submit([i, *SHARED[:9]], Sampling(0.0, 25), 0) for i in range(4)]
    most, interrupted = 0, False
    while engine.pending:
        engine.step()
        most = max(most, len(engine.running))
        interrupted |= any(request.completion for request in engine.waiting)
    assert most > 1
    assert interrupted
    for request in requests:
        check(GROUPED, request)


def test_without_blocks_a_request_waits_and_no_one_overtakes_it():
    engine = engine_of(context=40, memory=bytes_for(GROUPED, 40))
    first = engine.submit([1] * 20, Sampling(0.0, 3), 0)
    large = engine.submit([2] * 30, Sampling(0.0, 3), 0)
    small = engine.submit([3], Sampling(0.0, 3), 0)
    engine.step()
    assert (engine.running, engine.waiting) == ([first], [large, small])
    finish(engine, [first, large, small])
    for request in (first, large, small):
        check(GROUPED, request)


def test_memory_for_less_than_one_conversation_is_an_error():
    with pytest.raises(InputError, match="less than one conversation of 128"):
        engine_of(memory=bytes_for(GROUPED, 127))


# ── order ────────────────────────────────────────────────────────────────────


def test_a_program_that_had_no_service_displaces_one_that_had_much():
    engine = engine_of(slots=1, schedule=AttainedService(quantum=8))
    long = engine.submit(SHARED, Sampling(0.0, 20), 0, program="long")
    for _ in range(4):
        engine.step()
    short = engine.submit([5, 6], Sampling(0.0, 2), 0, program="short")
    finish(engine, [short])
    assert long.finish is None
    assert (long.past, len(long.completion)) == (None, 4)
    finish(engine, [long])
    check(GROUPED, short)
    check(GROUPED, long)


def test_first_come_first_served_displaces_no_one():
    engine = engine_of(slots=1)
    long = engine.submit(SHARED, Sampling(0.0, 20), 0, program="long")
    engine.step()
    short = engine.submit([5, 6], Sampling(0.0, 2), 0, program="short")
    finish(engine, [long])
    assert not short.completion


# ── sampling ─────────────────────────────────────────────────────────────────


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
    crowd = engine_of(
        slots=3, step_tokens=9, memory=bytes_for(GROUPED, 128), schedule=AttainedService(4)
    )
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
    (request,) = finish(engine, [engine.submit([3, 4], Sampling(0.5, 6), 1)])
    wanted = logprobs(GROUPED, [3, 4], request.completion, temperature=0.5)
    assert request.logprobs == pytest.approx(wanted, abs=1e-4)


def test_the_entropy_of_each_token_is_that_of_what_it_was_sampled_from():
    engine = engine_of()
    (request,) = finish(engine, [engine.submit([3, 4], Sampling(0.5, 6), 1)])
    rows = distributions(GROUPED, [3, 4], request.completion, temperature=0.5)
    wanted = -(rows.exp() * rows).sum(dim=-1)
    assert request.entropies == pytest.approx(wanted.tolist(), abs=1e-4)


# ── ends ─────────────────────────────────────────────────────────────────────


def test_a_reply_ends_at_an_end_token_at_its_limit_or_at_the_context():
    (token,) = finish(e := engine_of(), [e.submit([3, 4], Sampling(0.0, 1), 0)])[0].completion
    ending = Engine(GROUPED, frozenset({token}), slots=1, context=128)
    (stopped,) = finish(ending, [ending.submit([3, 4], GREEDY, 0)])
    assert (stopped.finish, stopped.completion) == (Finish.STOP, [token])
    short = engine_of(context=10)
    full, limited = finish(
        short, [short.submit([3] * 8, GREEDY, 0), short.submit([3], Sampling(0.0, 2), 0)]
    )
    assert (full.finish, len(full.completion)) == (Finish.LENGTH, 2)
    assert (limited.finish, len(limited.completion)) == (Finish.LENGTH, 2)


def letters(tokens):
    return "".join(chr(ord("a") + token) for token in tokens)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_reply_ends_with_the_token_that_completes_a_stop_string(length):
    engine = engine_of(text=letters)
    (free,) = finish(engine, [engine.submit([3, 4], GREEDY, 0)])
    stop = letters(free.completion[4 : 4 + length])
    end = letters(free.completion).index(stop) + length
    sampling = Sampling(0.0, 12, stop=("no such text", stop))
    (stopped,) = finish(engine, [engine.submit([3, 4], sampling, 0)])
    assert stopped.finish is Finish.STOP
    assert stopped.completion == free.completion[:end]


def test_stop_strings_of_no_one_or_of_nothing_are_refused():
    with pytest.raises(InputError, match="text="):
        engine_of().submit([3], Sampling(stop=("x",)), 0)
    with pytest.raises(InputError, match="`stop` has an empty string"):
        Sampling(stop=("x", ""))


def test_a_prompt_that_fills_the_context_is_refused():
    engine = engine_of(context=10)
    with pytest.raises(ContextTooLong, match="10 tokens"):
        engine.submit([3] * 10, GREEDY, 0)
    assert engine.pending == 0
    assert engine_of(context=999).context == 128  # no longer than the network's own


def test_cancelling_frees_what_is_held_at_any_moment():
    engine = engine_of(slots=1, step_tokens=8)
    running, waiting = (engine.submit(SHARED, GREEDY, 0) for _ in range(2))
    engine.step()  # `running` has read a part of its prompt
    engine.cancel(running)
    engine.cancel(waiting)
    engine.cancel(running)  # once more does no harm
    assert engine.pending == 0
    assert engine.cache.available == engine.cache.blocks
    (request,) = finish(engine, [engine.submit(SHARED, GREEDY, 0)])
    check(GROUPED, request)


# ── new weights ──────────────────────────────────────────────────────────────


def moved(network: DecoderNetwork) -> None:
    with torch.no_grad():
        network.blocks[0].qkv.weight.mul_(1.5)


def test_keys_and_values_of_old_weights_would_change_the_answer():
    network = grouped()
    stale, cleared = engine_of(network), engine_of(network)
    sampling = Sampling(0.0, 1)
    for engine in (stale, cleared):
        finish(engine, [engine.submit(SHARED, sampling, 0)])
    moved(network)
    cleared.clear()
    fresh = engine_of(network)
    answers = [finish(e, [e.submit(SHARED, sampling, 0)])[0] for e in (stale, cleared, fresh)]
    assert answers[1].logprobs == pytest.approx(answers[2].logprobs, abs=1e-6)
    assert abs(answers[0].logprobs[0] - answers[2].logprobs[0]) > 1e-3
    assert (answers[0].cached, answers[1].cached) == (len(SHARED) - 1, 0)


def test_weights_cannot_change_in_the_middle_of_a_reply_that_must_be_drained():
    engine = engine_of()
    engine.submit(SHARED, GREEDY, 0)
    engine.step()
    with pytest.raises(RuntimeError, match="while a reply was being sampled"):
        engine.clear()


def test_while_holding_only_running_replies_continue():
    engine = engine_of(slots=2)
    begun = engine.submit(SHARED, GREEDY, 0)
    engine.step()
    engine.holding = True
    waiting = engine.submit([5], GREEDY, 0)
    while engine.under_way:
        engine.step()
    assert begun.finish is Finish.LENGTH
    assert (engine.step(), waiting.past) == ([], None)
    engine.holding = False
    finish(engine, [waiting])


@pytest.mark.parametrize("on_update", [OnUpdate.RECOMPUTE, OnUpdate.KEEP])
def test_running_replies_continue_under_new_weights_each_token_with_its_version(on_update):
    network, old = grouped(), grouped()
    engine = engine_of(network, on_update=on_update, step_tokens=16)
    replies = [engine.submit([*SHARED, i], GREEDY, 0) for i in range(3)]
    while not all(request.completion for request in replies):
        engine.step()
    replies.append(engine.submit(SHARED[::-1], GREEDY, 0))
    engine.step()  # the last one has read a part of its prompt
    before = [(len(request.completion), request.held.length) for request in replies]
    assert 0 < before[-1][1] < len(SHARED)
    moved(network)
    engine.clear()
    engine.version = 1
    finish(engine, replies)
    for request, (n, length) in zip(replies, before, strict=True):
        assert request.versions == [0] * n + [1] * (12 - n)
        text = [*request.tokens, *request.completion]
        first, rest = request.completion[:n], request.completion[n:]
        assert request.logprobs[:n] == pytest.approx(logprobs(old, request.tokens, first), abs=1e-4)
        # the last token sampled before was not run yet: its keys and values are new ones
        kept = length if on_update is OnUpdate.KEEP else 0
        past = Past(old, text[:kept])
        assert choices(network, text[: len(request.tokens) + n], rest, past) == rest
        wanted = logprobs(network, text[: len(request.tokens) + n], rest, past=past)
        assert request.logprobs[n:] == pytest.approx(wanted, abs=1e-4)
    again = engine.submit([*SHARED, 0], GREEDY, 0)
    finish(engine, [again])
    check(network, again)  # no other request finds keys of the old weights
    assert engine.cache.available == engine.cache.blocks
