"""The learner: the right gradient, however the work is cut up, and weights that keep it."""

import copy
import math
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import InputError, RecipeError
from palaestra.core.model import Sampling
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Micro, Trained, micro_batches, spread
from palaestra.learning.compute.weight_selection import everything, top_layers
from palaestra.learning.critics.value_head import Critic
from palaestra.learning.data.rows import rows_of
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.policy_loss import grpo, loop, pg, ppo
from palaestra.learning.losses.trained_tokens import ratio
from palaestra.models.local.checkpoint_format import write_network
from palaestra.models.local.engine import Engine
from palaestra.models.local.kernels.causal_attention import native_causal
from palaestra.models.local.kernels.matmul import native_matmul
from palaestra.models.local.tiny import tiny_network
from tests.learning.made import (
    call,
    credited,
    episode,
    finish,
    gradients,
    grouped,
    learner_of,
    resident,
    same,
    sampled_rows,
    tiny,
)

LOSSES = [pg, ppo, loop]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The same weights in an independent, dense implementation."""
    from transformers import LlamaForCausalLM

    folder = tmp_path_factory.mktemp("reference")
    write_network(grouped(), folder)
    model = LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model


def dense_logprobs(model, row):
    logits = model(torch.tensor([row.tokens])).logits[0]
    lp = torch.log_softmax(logits[:-1], dim=-1)
    return torch.stack([lp[i - 1, row.tokens[i]] for i, on in enumerate(row.mask) if on])


# ── log-probabilities and gradients ──────────────────────────────────────────


def test_packed_logprobs_equal_those_of_a_dense_reference(reference):
    rows = sampled_rows(7)
    ours = learner_of(grouped(), micro_tokens=50).logprobs(rows)
    for row, lp in zip(rows, ours, strict=True):
        assert torch.allclose(torch.tensor(lp), dense_logprobs(reference, row), atol=1e-4)


def test_packed_gradients_equal_those_of_a_dense_reference(reference):
    rows = sampled_rows(7)
    ours = gradients(learner_of(grouped(), micro_tokens=50), rows, pg)
    reference.zero_grad()
    for row in rows:
        on = torch.tensor(row.mask)
        factor = torch.tensor(row.advantage)[on] * torch.tensor(row.weight)[on]
        (-factor * dense_logprobs(reference, row)).sum().backward()
    theirs = {
        "embedding.weight": reference.model.embed_tokens.weight.grad,
        "blocks.0.down.weight": reference.model.layers[0].mlp.down_proj.weight.grad,
        "blocks.2.attention_norm": reference.model.layers[2].input_layernorm.weight.grad,
    }
    assert same({name: ours[name] for name in theirs}, theirs, 1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000), micro_tokens=st.integers(1, 300), data=st.data())
def test_micro_batches_and_the_order_of_rows_change_no_gradient(loss, seed, micro_tokens, data):
    rows = sampled_rows(6, seed=seed)
    whole = gradients(learner_of(tiny(), micro_tokens=10_000), rows, loss)
    order = data.draw(st.permutations(rows))
    split = gradients(learner_of(tiny(), micro_tokens=micro_tokens), order, loss)
    assert same(whole, split)


def test_weights_after_an_update_do_not_depend_on_micro_batches():
    rows = sampled_rows(6)
    large, small = (learner_of(tiny(), micro_tokens=n) for n in (10_000, 20))
    for learner in (large, small):
        for _ in range(3):
            learner.update(rows, ppo)
    assert same(large.state()["weights"], small.state()["weights"], 1e-4)


@pytest.mark.parametrize(
    "aggregation",
    [Aggregation.TOKEN_MEAN, Aggregation.ROLLOUT_TOKEN_MEAN, Aggregation.ROLLOUT_TOKEN_SUM],
)
def test_splitting_an_episode_into_rows_changes_no_gradient(aggregation):
    other = episode([call(0, None, [9, 8, 7], [6, 5])], member=1)
    grown = episode([call(0, None, [3, 4], [5, 6]), call(1, 0, [7], [8, 9, 10])])
    restarted = episode([call(0, None, [3, 4], [5, 6]), call(1, None, [3, 4, 5, 6, 7], [8, 9, 10])])
    found = []
    for made in (grown, restarted):
        rows = rows_of(made, "policy") + rows_of(other, "policy")
        trained = credited(rows, {made.key: 1.5, other.key: -0.5}, aggregation)
        found.append(gradients(learner_of(tiny()), trained, pg))
    assert same(*found)


@pytest.mark.parametrize("loss", [ppo, loop])
def test_at_the_samplers_own_weights_every_loss_has_the_gradient_of_reinforce(loss):
    rows = sampled_rows(4)
    learner = learner_of(tiny())
    on_policy = []
    for row, lp in zip(rows, learner.logprobs(rows), strict=True):
        on_policy.append(replace(row, lp_old=spread(row.mask, lp)))
    clipped = gradients(learner, on_policy, loss)
    assert same(clipped, gradients(learner_of(tiny()), on_policy, pg))


def test_what_is_not_trained_counts_nowhere():
    """Other figures on masked positions change neither the loss nor any figure."""
    rows = [
        replace(
            row,
            lp_beh=row.lp_old,
            lp_ref=[lp - 0.1 for lp in row.lp_old],
            value_target=[float(token % 3) for token in row.tokens],
            value_old=[0.5] * len(row.tokens),
        )
        for row in sampled_rows(4)
    ]
    noisy = [
        replace(
            row,
            **{
                name: [v if on else 99 for v, on in zip(getattr(row, name), row.mask, strict=True)]
                for name in (
                    "lp_old lp_beh lp_ref advantage weight version turn value_target value_old"
                ).split()
            },
        )
        for row in rows
    ]
    found = []
    for batch in (rows, noisy):
        learner = learner_of(tiny(), critic=Critic(1e-2, clip=0.3))
        update = learner.update(
            batch, partial(grpo, beta=0.1), entropy=lambda nats, _, weight: -(nats * weight).sum()
        )
        found.append((update, copy.deepcopy(learner.state()["weights"])))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1], 0.0)


# ── sampler and learner ──────────────────────────────────────────────────────


def sampled(network):
    """Replies of the engine, as rows."""
    engine = Engine(network, frozenset({0}), slots=4, context=128, step_tokens=24)
    prompts = [[3, 4, 5, 6 + i, *range(7, 7 + i)] for i in range(8)]
    requests = finish(
        engine, [engine.submit(p, Sampling(1.0, 20), i) for i, p in enumerate(prompts)]
    )
    return [
        Trained(
            r.tokens + r.completion,
            [False] * len(r.tokens) + [True] * len(r.completion),
            lp_old=[0.0] * len(r.tokens) + r.logprobs,
            weight=[0.01] * (len(r.tokens) + len(r.completion)),
        )
        for r in requests
    ]


def gaps(network):
    rows = sampled(network)
    learner = learner_of(network)
    old = [lp for r in rows for lp, on in zip(r.lp_old, r.mask, strict=True) if on]
    new = [lp for row in learner.logprobs(rows) for lp in row]
    return (torch.tensor(old) - torch.tensor(new)).abs()


def test_the_engines_logprobs_equal_the_learners_in_fp32():
    assert float(gaps(grouped()).max()) <= 1e-4


def test_the_engines_logprobs_are_near_the_learners_in_bf16():
    found = gaps(tiny().to(torch.bfloat16))
    assert float(found.max()) <= 0.1
    assert float(found.mean()) <= 0.03


def test_long_contexts_have_equal_logprobs_in_bf16():
    """Prompts in chunks, replies token by token, and whole rows in parts: all in one order."""
    if native_causal(torch.empty(1, 1, 32, dtype=torch.bfloat16)) is None:
        pytest.skip("no compiler, or a processor that cannot multiply pairs of 16-bit numbers")
    native = native_matmul()
    if native is None or not all(native.in_torchs_order(inputs) for inputs in (128, 384)):
        pytest.skip("the order in which torch adds up here was not found")
    network = tiny_network(64, layers=4, width=128, heads=4, context=2400, seed=1)
    with torch.no_grad():
        for parameter in network.parameters():  # so that attention chooses
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    network.to(torch.bfloat16)
    rng = random.Random(0)
    engine = Engine(network, frozenset(), slots=2, context=2400)
    prompts = [[rng.randrange(64) for _ in range(length)] for length in (1030, 2301)]
    requests = finish(
        engine, [engine.submit(p, Sampling(1.0, 6), i) for i, p in enumerate(prompts)]
    )
    rows = [
        Trained(r.tokens + r.completion, [False] * len(r.tokens) + [True] * len(r.completion))
        for r in requests
    ]
    for request, learned in zip(requests, learner_of(network).logprobs(rows), strict=True):
        assert request.logprobs == pytest.approx(learned, abs=1e-5)


def test_a_first_update_reports_no_gap_to_the_sampler():
    network = tiny()
    rows = sampled(network)
    update = learner_of(network).update(rows, ppo)
    assert update.gap_max <= 1e-4
    assert abs(update.kl) <= 1e-6
    assert update.clipped == 0
    assert update.tokens == sum(sum(r.mask) for r in rows)
    distinct = {tuple(r.tokens[: i + 1]) for r in rows for i in range(len(r.tokens))}
    assert update.processed <= sum(len(r.tokens) for r in rows)
    assert update.processed >= len(distinct)


def test_rows_that_begin_alike_have_the_gradients_of_rows_run_apart():
    rows = sampled_rows(3)
    start = rows[0].tokens[:3]
    alike = [
        Trained(
            tokens=start + row.tokens,
            mask=[False, True, True, *row.mask],
            lp_old=[-2.0, -2.0, -2.0, *row.lp_old],
            advantage=[0.0, 0.5 * i, 1.0, *row.advantage],
            weight=[0.0, 0.1, 0.2, *row.weight],
        )
        for i, row in enumerate(rows + rows)
    ]
    apart, together = learner_of(tiny(), micro_tokens=1), learner_of(tiny(), micro_tokens=10_000)
    assert same(gradients(apart, alike, loop), gradients(together, alike, loop))


# ── figures ──────────────────────────────────────────────────────────────────


def known_ratios(learner, rows, ratios):
    """The rows with `lp_old` such that their tokens have these ratios in turn."""
    found, number = [], 0
    for row, lp in zip(rows, learner.logprobs(rows), strict=True):
        old = []
        for value in lp:
            old.append(value - math.log(ratios[number % len(ratios)]))
            number += 1
        found.append(replace(row, lp_old=spread(row.mask, old)))
    return found


def test_shares_outside_the_clip_are_counted_below_and_above_over_trained_tokens():
    learner, ratios = learner_of(tiny()), [1.5, 0.5, 1.1, 0.9, 0.7]
    rows = known_ratios(learner, sampled_rows(6), ratios)
    tokens = sum(sum(row.mask) for row in rows)
    samples = torch.tensor([ratios[i % 5] for i in range(tokens)])
    update = learner.update(rows, ppo)
    assert update.tokens == tokens
    assert update.clipped_low == pytest.approx(float((samples < 0.8).float().mean()))
    assert update.clipped_high == pytest.approx(float((samples > 1.2).float().mean()))
    assert update.clipped == pytest.approx(update.clipped_low + update.clipped_high)
    assert update.ratio_max == pytest.approx(1.5, rel=1e-4)
    assert update.kl == pytest.approx(float((samples - 1 - samples.log()).mean()), rel=1e-3)


def test_the_gap_is_to_the_sampler_and_the_kl_to_the_proximal_policy():
    learner = learner_of(tiny())
    rows = known_ratios(learner, sampled_rows(4), [1.0])
    apart = [replace(row, lp_beh=[lp - 0.5 for lp in row.lp_old]) for row in rows]
    update = learner.update(apart, ppo)
    assert (update.gap, update.gap_max) == pytest.approx((0.5, 0.5), abs=1e-4)
    assert (update.kl, update.clipped) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_a_loss_sees_who_sampled_each_token_and_with_which_weights():
    seen = []

    def watching(tokens):
        seen.append(tokens)
        return pg(tokens)

    learner = learner_of(tiny())
    rows = sampled_rows(3)
    learner.update(rows, watching)
    learner.update(
        [
            replace(r, rollout="one", turn=[7] * len(r.tokens), version=[5] * len(r.tokens))
            for r in rows
        ],
        watching,
        proximal=0,
        whole_rollouts=True,
    )
    fresh, later = seen[0], seen[-1]
    assert (fresh.current, fresh.proximal) == (1, 0)
    assert (later.current, later.proximal) == (2, 0)
    assert later.lp_ref is None
    assert set(later.version.tolist()) == {5}
    assert len(set(later.rollout.tolist())) == len(set(later.turn.tolist())) == 1
    assert float(ratio(later.lp_beh, later.lp_old).max()) == 1.0


# ── entropy ──────────────────────────────────────────────────────────────────


def test_an_entropy_bonus_raises_the_entropy():
    rows = [replace(row, advantage=[0.0] * len(row.tokens)) for row in sampled_rows(4)]
    learner = learner_of(tiny(), rate=3e-3)
    found = [
        learner.update(rows, ppo, entropy=lambda nats, _, weight: -(nats * weight).sum()).entropy
        for _ in range(10)
    ]
    assert found[-1] > found[0] + 0.05


# ── the reference policy ─────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_reference_stays_what_the_policy_was(dtype):
    network, rows = tiny().to(dtype), sampled_rows(4)
    learner = learner_of(network, rate=1e-2, reference="start")
    first = learner.logprobs(rows)
    assert learner.reference(rows) == first
    learner.update(rows, pg)
    moved, weights = learner.logprobs(rows), copy.deepcopy(network.state_dict())
    assert moved != first
    assert learner.reference(rows) == first
    assert learner.logprobs(rows) == moved
    assert same(network.state_dict(), weights, 0.0)
    learner.set_reference()
    assert learner.reference(rows) == moved


def test_training_goes_on_bit_for_bit_after_the_reference_was_asked():
    asked, silent = (learner_of(tiny(), reference=one) for one in ("start", None))
    for seed in range(3):
        rows = sampled_rows(3, seed=seed)
        asked.reference(rows)
        assert asked.update(rows, ppo) == silent.update(rows, ppo)
    assert same(asked.state()["weights"], silent.state()["weights"], 0.0)


def test_the_present_policy_is_back_after_a_failed_look_at_the_reference():
    network = tiny()
    learner = learner_of(network, rate=1e-2, reference="start")
    learner.update(sampled_rows(3), pg)
    weights = copy.deepcopy(network.state_dict())
    with pytest.raises(IndexError):
        learner.reference([Trained([1, 999], [False, True])])
    assert same(network.state_dict(), weights, 0.0)


def test_a_reference_copies_only_what_is_trained():
    network = tiny(layers=3)
    chosen = top_layers(network, 1)
    learner = Learner(resident(network), chosen, Optimisation(1e-2), reference="start")
    assert learner.state()["reference"].keys() == chosen.parameters.keys()


def test_a_restored_learner_has_the_reference_of_the_one_that_stopped():
    rows = sampled_rows(3)
    learner = learner_of(tiny(), rate=1e-2, reference="start")
    learner.update(rows, pg)
    learner.set_reference()
    learner.update(rows, pg)
    resumed = learner_of(tiny(seed=9), reference="start")
    resumed.restore(copy.deepcopy(learner.state()))
    assert resumed.reference(rows) == learner.reference(rows)
    assert resumed.logprobs(rows) == learner.logprobs(rows)


def test_a_kl_term_draws_the_policy_back_to_its_reference():
    rows = sampled_rows(4)
    learner = learner_of(tiny(), rate=3e-3, reference="start")
    still = [replace(row, advantage=[0.0] * len(row.tokens)) for row in rows]
    for _ in range(10):
        learner.update(rows, pg)

    def apart():
        pairs = zip(learner.logprobs(rows), learner.reference(rows), strict=True)
        return sum(abs(a - b) for lp, ref in pairs for a, b in zip(lp, ref, strict=True))

    before = apart()
    for _ in range(20):
        lp, ref = learner.logprobs(still), learner.reference(still)
        learner.update(
            [
                replace(row, lp_old=spread(row.mask, old), lp_ref=spread(row.mask, r))
                for row, old, r in zip(still, lp, ref, strict=True)
            ],
            partial(grpo, beta=1.0),
        )
    assert apart() < 0.5 * before


def test_without_a_reference_it_cannot_be_asked():
    with pytest.raises(InputError, match="reference='start'"):
        learner_of(tiny()).reference(sampled_rows(1))


# ── which weights move ───────────────────────────────────────────────────────


def test_top_layers_freezes_what_lies_below():
    network = tiny(layers=3)
    before = copy.deepcopy(network.state_dict())
    learner = Learner(resident(network), top_layers(network, 1), Optimisation(1e-2))
    learner.update(sampled_rows(4), pg)
    moved = {n for n, t in network.state_dict().items() if not torch.equal(t, before[n])}
    assert moved == {n for n in before if n.startswith("blocks.2.") or n == "norm"}


def test_a_frozen_trunk_leaves_the_gradients_above_it_unchanged():
    rows, optimisation = sampled_rows(5), Optimisation(1e-3, clip_norm=1e9)
    whole = gradients(learner_of(tiny(layers=3)), rows, loop)
    network = tiny(layers=3)
    top = gradients(Learner(resident(network), top_layers(network, 2), optimisation), rows, loop)
    assert len(top) == 2 * 6 + 1
    assert same({name: whole[name] for name in top}, top)


def test_more_layers_than_there_are_cannot_be_trained():
    with pytest.raises(RecipeError, match="2 layers"):
        top_layers(tiny(), 3)


def test_many_tiny_updates_are_not_lost_to_rounding():
    """bf16 weights of 0.1 are 0.0005 apart; forty steps of 0.00002 must still move them."""
    rows, rate, steps = sampled_rows(4), 2e-5, 40
    exact, ours, naive = tiny(), tiny().to(torch.bfloat16), tiny().to(torch.bfloat16)
    start = {n: p.detach().float().clone() for n, p in ours.named_parameters()}
    with torch.no_grad():
        for name, parameter in exact.named_parameters():
            parameter.copy_(start[name])
    plain = Learner(resident(exact), everything(exact), Optimisation(rate))
    master = Learner(resident(ours), everything(ours), Optimisation(rate))
    # the same optimiser without master weights, directly on the bf16 tensors
    optimiser = torch.optim.AdamW(naive.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    for _ in range(steps):
        plain.update(rows, pg)
        master.update(rows, pg)
        for group in micro_batches(rows, 64):
            _loss(naive, group).backward()
        optimiser.step()
        optimiser.zero_grad()

    def moved(weights):
        return torch.cat([(weights[n].float() - start[n]).flatten() for n in start])

    wanted = moved(exact.state_dict())
    kept = moved(master.state()["weights"])
    published = moved(ours.state_dict())
    lost = moved(naive.state_dict())
    assert float((kept - wanted).norm()) < 0.3 * float(wanted.norm())
    assert float((published - kept).norm() / start_norm(start)) < 2**-8  # one rounding, no more
    assert along(published, wanted) > 0.7
    assert along(lost, wanted) < 0.5 * along(published, wanted)


def _loss(network, rows):
    micro = Micro(rows, network)
    hidden = micro.hidden()[micro.predictors]
    lp = network.logits(hidden).float().log_softmax(dim=1)
    chosen = lp.gather(1, micro.targets.unsqueeze(1)).squeeze(1)
    return (pg(micro.seen(chosen, current=0, proximal=0)) * micro.weight).sum()


def along(moved, wanted):
    """Return how far the weights moved in the wanted direction: 1 is the target."""
    return float(moved @ wanted / (wanted @ wanted))


def start_norm(start):
    return torch.cat([t.flatten() for t in start.values()]).norm()


def test_a_non_finite_gradient_leaves_the_weights_untouched():
    learner = learner_of(tiny())
    learner.update(sampled_rows(3), pg)
    before = copy.deepcopy(learner.state())
    update = learner.update(sampled_rows(3), lambda t: (t.lp - t.lp.detach()).sqrt())  # 0, steep
    assert update.gradient_norm != update.gradient_norm
    after = learner.state()
    for part in before:
        assert same(before[part], after[part], 0.0)


# ── stopping and going on ────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_learner_goes_on_bit_for_bit(dtype):
    batches = [sampled_rows(4, seed=i) for i in range(4)]
    through = learner_of(tiny().to(dtype))
    for rows in batches[:2]:
        through.update(rows, ppo)
    saved = copy.deepcopy(through.state())
    resumed = learner_of(tiny(seed=9).to(dtype))
    resumed.restore(saved)
    for rows in batches[2:]:
        assert through.update(rows, ppo) == resumed.update(rows, ppo)
    for part, tensors in through.state().items():
        assert same(tensors, resumed.state()[part], 0.0)
    theirs = resumed.model.network.state_dict()
    for name, tensor in through.model.network.state_dict().items():
        assert torch.equal(tensor, theirs[name])


def test_restoring_drops_what_the_engine_remembers():
    prompt, sampling = list(range(3, 15)), Sampling(0.0, 8)
    learner = learner_of(tiny())
    engine = learner.model.engine
    finish(engine, [engine.submit(prompt, sampling, 0)])
    learner.restore(copy.deepcopy(learner_of(tiny(seed=9)).state()))
    (again,) = finish(engine, [engine.submit(prompt, sampling, 0)])
    other = Engine(tiny(seed=9), frozenset({0}))
    (wanted,) = finish(other, [other.submit(prompt, sampling, 0)])
    assert again.completion == wanted.completion
    assert again.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)


def test_restoring_an_untrained_state_forgets_the_moments():
    learner = learner_of(tiny())
    fresh = copy.deepcopy(learner.state())
    learner.update(sampled_rows(3), pg)
    learner.restore(fresh)
    assert learner.state()["exp_avg"] == {}
    assert same(learner.state()["weights"], fresh["weights"], 0.0)


def test_an_update_raises_the_version():
    learner = learner_of(tiny())
    learner.update(sampled_rows(2), pg)
    assert learner.model.version == 1
