"""Whole episodes as examples: filtered, weighted, rejected, and with masked steps."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.outcome import Outcome
from palaestra.learning.data.examples.cloning import filtered_cloning, reward_weighted
from palaestra.learning.data.examples.example import SCORES
from palaestra.learning.data.examples.rejection import rejection
from palaestra.learning.data.examples.step_masks import step_masks
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, Status, find
from tests.learning.data.examples.stories import BROKEN, Turn, story, trained_words, words

FAILURE = Outcome.failure()
BUILDERS = [filtered_cloning, reward_weighted, rejection, step_masks]


def ended(outcomes, **more):
    """One episode per outcome, each with an action of its own."""
    return [
        story([Turn("s0", f"a{n}", reward=float(o.solved))], member=n, outcome=o, **more)
        for n, o in enumerate(outcomes)
    ]


@pytest.mark.parametrize("builder", BUILDERS)
def test_episodes_without_a_valid_result_teach_nothing(builder):
    made = [story([Turn("s0", "a0", reward=1.0)], outcome=BROKEN), story([], member=1)]
    assert builder(made, "policy") == []


@pytest.mark.parametrize("builder", BUILDERS)
def test_only_what_the_policy_itself_replied_is_trained(builder):
    made = [
        story([Turn("s0", "a0", reward=1.0)]),
        story([Turn("s0", "a1", reward=1.0)], member=1, policy="other"),
    ]
    assert [trained_words(example.row) for example in builder(made, "policy")] == ["a0"]


@pytest.mark.parametrize("builder", BUILDERS)
def test_builders_are_registered_under_their_module(builder):
    part = find(Kind.EXAMPLES, f"{builder.__module__}:{builder.__name__}")
    assert part.function is builder
    assert part.status in (Status.RELEASE, Status.EXPERIMENTAL)
    assert part.summary.endswith(".")


# ── filtered ─────────────────────────────────────────────────────────────────


def test_filtered_cloning_studies_every_step_of_what_succeeded():
    lengths, verdicts = [3, 5, 2], [True, False, True]  # PAE: 5 training rows
    made = [
        story(
            [(f"s{k}", f"a{k}") for k in range(length)],
            member=n,
            rooted=True,
            outcome=Outcome.success() if verdict else FAILURE,
        )
        for n, (length, verdict) in enumerate(zip(lengths, verdicts, strict=True))
    ]
    found = filtered_cloning(made, "policy")
    assert len(found) == 5
    assert all(example.weight == 1 for example in found)


def test_the_best_share_is_kept_and_ties_with_it():
    scores = {0: 0.1, 1: 0.9, 2: 0.5, 3: 0.5, 4: 0.2}
    made = ended([FAILURE] * 5)

    def kept(share, least=0.0):
        found = filtered_cloning(
            made, "policy", share=share, least=least, score=lambda e: scores[e.key.member]
        )
        return [example.row.key.member for example in found]

    assert kept(0.2) == [1]
    assert kept(0.4) == [1, 2, 3]
    assert kept(1.0) == [0, 1, 2, 3, 4]
    assert kept(1.0, least=0.3) == [1, 2, 3]
    assert kept(0.01) == [1]
    assert kept(1.0, least=2.0) == []
    with pytest.raises(InputError, match="share"):
        kept(0.0)


# ── weighted ─────────────────────────────────────────────────────────────────


def test_weights_are_the_episodes_scores():
    made = [story([Turn("s0", "a0", reward=r)], member=n) for n, r in enumerate([0.25, 0.0, 1.0])]
    found = reward_weighted(made, "policy")
    assert [(example.row.key.member, example.weight) for example in found] == [(0, 0.25), (2, 1.0)]


def test_weights_below_zero_are_refused():
    with pytest.raises(InputError, match="at least"):
        reward_weighted([story([Turn("s0", "a0", reward=-0.1)])], "policy")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(0, 99))
def test_weighted_imitation_has_the_gradient_of_the_weighted_likelihood(rewards, seed):
    made = [story([Turn("s0", f"a{n}", reward=r)], member=n) for n, r in enumerate(rewards)]
    g = torch.Generator().manual_seed(seed)
    for example in reward_weighted(made, "policy"):
        n = len(example.row.tokens)
        lp = torch.randn(n, generator=g, dtype=torch.float64).requires_grad_()
        advantage = torch.tensor(example.advantage, dtype=torch.float64)
        (gradient,) = torch.autograd.grad((-advantage * lp).sum(), lp)
        weight = rewards[example.row.key.member]
        expected = [-weight if on else 0.0 for on in example.row.mask]
        assert gradient.tolist() == expected


# ── rejection ────────────────────────────────────────────────────────────────


def test_the_rewards_of_self_challenging_give_two_rows():
    made = ended([Outcome.success(), FAILURE] * 2)
    assert [trained_words(example.row) for example in rejection(made, "policy")] == ["a0", "a2"]


def test_one_success_per_task_and_none_where_nothing_succeeded():
    store = [
        story([("s0", f"a{n}")], task="A", phase=f"rl/{n}", version=n) for n in range(5)
    ]  # Entropulse: five successes of A, one of B, none of C
    store += [story([("s1", "b1")], task="B"), story([("s2", "g1")], task="C", outcome=FAILURE)]
    sampled = [
        {trained_words(example.row) for example in rejection(store, "policy", cap=1, seed=seed)}
        for seed in range(20)
    ]
    assert all(len(each) == 2 and "b1" in each for each in sampled)
    assert len(set().union(*sampled)) > 3  # which of A's, from which version, is chance


def test_the_same_solution_of_a_task_counts_once():
    made = [story([("s0", "a0")], member=n) for n in range(3)] + [story([("s0", "a1")], member=3)]
    assert [trained_words(example.row) for example in rejection(made, "policy")].count("a0") == 1
    twice = [story([("s0", "a0")], task=task) for task in "AB"]
    assert len(rejection(twice, "policy")) == 2


@given(st.integers(1, 3), st.integers(0, 9), st.randoms(use_true_random=False))
def test_the_order_of_the_episodes_does_not_matter(cap, seed, chance):
    made = [
        story([("s0", f"a{n}")], task="AB"[n % 2], member=n, phase=f"rl/{n // 3}") for n in range(6)
    ]
    shuffled = list(made)
    chance.shuffle(shuffled)
    assert rejection(shuffled, "policy", cap=cap, seed=seed) == rejection(
        made, "policy", cap=cap, seed=seed
    )


def test_a_cap_below_one_is_refused():
    with pytest.raises(InputError, match="cap"):
        rejection([], "policy", cap=0)


# ── step masks ───────────────────────────────────────────────────────────────


def test_the_mistaken_step_stays_as_context_and_is_not_trained():
    made = story(
        [
            Turn("s0", "a0 a1 a2"),  # right: 4 tokens with the end token
            Turn("s1", "b0 b1 b2 b3", valid=False),  # wrong: 5
            Turn("s1", "oops t0 g0 g1 g2"),  # reflection and correction: 6
            Turn("s2", "a3 a4"),  # right: 3
        ]
    )
    (example,) = step_masks([made], "policy")
    (whole,) = rows_of(made, "policy")
    assert (example.row.trained, whole.trained) == (13, 18)
    assert words(example.row) == words(whole)
    assert trained_words(example.row) == "a0 a1 a2 oops t0 g0 g1 g2 a3 a4"


def test_another_judge_of_mistakes_can_be_given():
    made = story([("s0", "a0"), ("s1", "a1")])
    (example,) = step_masks([made], "policy", mistakes=lambda episode, policy: {1})
    assert words(example.row) == "s0 a0"


def test_episodes_that_failed_or_are_all_mistake_give_nothing():
    wrong = [Turn("s0", "b0", valid=False)]
    assert step_masks([story(wrong), story([("s0", "a0")], outcome=FAILURE)], "policy") == []


# ── names ────────────────────────────────────────────────────────────────────


def test_scores_and_mistakes_go_by_name_or_as_functions():
    made = [
        replace(story([Turn("s0", f"a{n}", reward=0.3 * n)], member=n), progress=0.4 * n)
        for n in range(3)
    ]
    for name, least, kept in [("success", 1, 3), ("reward", 0.5, 1), ("progress", 0.3, 2)]:
        assert len(filtered_cloning(made, "policy", least=least, score=name)) == kept
        assert len(filtered_cloning(made, "policy", least=least, score=SCORES[name])) == kept
    idle = story([("s0", "b0"), ("s0", "a0")])
    assert [trained_words(e.row) for e in step_masks([idle], "policy", mistakes="futile")] == ["a0"]


def test_unknown_names_are_errors():
    with pytest.raises(UnknownName, match="success"):
        rejection([], "policy", score="sucess")
    with pytest.raises(UnknownName, match="futile"):
        step_masks([], "policy", mistakes="futil")


def test_progress_that_no_environment_declares_scores_nothing():
    with pytest.raises(InputError, match="declares none"):
        rejection(ended([FAILURE]), "policy", score="progress")
