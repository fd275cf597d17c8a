"""Expressions of credit rules: how they read, how they add up, and whitening after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.learning.credit.anchors import anchor, gigpo
from palaestra.learning.credit.compose import needs, options, parse, whiten
from palaestra.learning.credit.gae import gae
from palaestra.learning.credit.returns import drgrpo, grpo, reinforce_plus_plus, rloo, running
from palaestra.learning.credit.roles import spiral
from palaestra.learning.credit.rule import Credit, broadcast
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, components
from tests.learning.credit.made import batch, close, rollout, scalars, trajectories


def by_length(batch: Sequence[Trajectory], *, unit: float = 1.0) -> Credit:
    """A rule of one's own, named by module and function."""
    return broadcast(batch, [unit * len(t.turns) for t in batch])


OWN = f"{__name__}:by_length"


def same(a: Credit, b: Credit) -> bool:
    return close(torch.cat(a.advantages), torch.cat(b.advantages), 1e-12)


def alone(groups: tuple[int, int] = (1, 3)) -> st.SearchStrategy[list[Trajectory]]:
    """As `trajectories`, without results per player, which `parse` would judge apart."""
    return trajectories(groups=groups).map(
        lambda sampled: [replace(t, outcomes={}) for t in sampled]
    )


def weighted(*parts: tuple[float, Credit]) -> Tensor:
    return sum(
        (weight * torch.cat(credit.advantages) for weight, credit in parts),
        start=torch.zeros(1, dtype=torch.float64),
    )


# Reading


@settings(max_examples=20)
@given(alone())
def test_a_name_is_its_rule(sampled: list[Trajectory]) -> None:
    assert same(parse("rloo")(sampled), rloo(sampled))
    assert same(parse(" reinforce++ ")(sampled), reinforce_plus_plus(sampled))


@settings(max_examples=20)
@given(alone())
def test_a_sum_adds_weighted_advantages(sampled: list[Trajectory]) -> None:
    group, step = rloo(sampled), anchor(sampled)
    for expression, weight in [
        ("rloo + 0.5*anchor", 0.5),
        ("rloo+anchor", 1.0),
        ("rloo - anchor", -1.0),
        ("rloo + .25 * anchor", 0.25),
        ("rloo-2e-1*anchor", -0.2),
    ]:
        total = torch.cat(parse(expression)(sampled).advantages)
        assert close(total, weighted((1.0, group), (weight, step)), 1e-12)
    three = parse("-rloo + reinforce++ + 0.5*anchor")(sampled)
    whitened = reinforce_plus_plus(sampled)
    assert close(
        torch.cat(three.advantages), weighted((-1.0, group), (1.0, whitened), (0.5, step)), 1e-12
    )


@settings(max_examples=20)
@given(alone())
def test_gigpo_is_a_sum_of_rules(sampled: list[Trajectory]) -> None:
    assert same(parse("drgrpo + anchor")(sampled), gigpo(sampled))
    scaled = {"anchor": {"normalise": True}}
    assert same(
        parse("grpo + 0.3*anchor", scaled)(sampled), gigpo(sampled, omega=0.3, normalise=True)
    )


@settings(max_examples=20)
@given(alone(groups=(1, 1)))
def test_gigpo_of_one_group_is_leave_one_out_with_a_weight(sampled: list[Trajectory]) -> None:
    shrunk = (len(sampled) - 1) / len(sampled)
    assert same(parse(f"{shrunk!r}*rloo + anchor")(sampled), gigpo(sampled))


def test_a_single_rule_may_have_a_weight_and_a_sign() -> None:
    sampled = batch([1, 0])
    assert scalars(parse("0.5*rloo")(sampled)).tolist() == [0.5, -0.5]
    assert scalars(parse("-rloo")(sampled)).tolist() == [-1, 1]


def test_a_rule_of_ones_own_is_named_by_module_and_function() -> None:
    sampled = batch([1, 0], turns=[3, 1])
    assert scalars(parse(OWN)(sampled)).tolist() == [3, 1]
    assert scalars(parse(f"rloo - 0.5*{OWN}")(sampled)).tolist() == [-0.5, -1.5]
    assert scalars(parse(OWN, {"unit": 2.0})(sampled)).tolist() == [6, 2]


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "  ",
        "rloo anchor",
        "rloo +",
        "rloo + + anchor",
        "rloo * 0.5",
        "0.5 rloo",
        "0.5*",
        "2*3*rloo",
        "(rloo)",
        "rloo, anchor",
    ],
)
def test_what_cannot_be_read_is_refused(expression: str) -> None:
    for reader in (parse, needs, options):
        with pytest.raises(RecipeError, match=r"cannot be read .*rloo \+ 0\.5\*anchor"):
            reader(expression)


def test_a_rule_named_twice_is_refused() -> None:
    with pytest.raises(RecipeError, match="names 'rloo' twice"):
        parse("rloo + 0.5*rloo")


@pytest.mark.parametrize("expression", ["rlo", "rloo + 0.5*ancor", "no.such.module:rule"])
def test_an_unknown_rule_is_named(expression: str) -> None:
    with pytest.raises(UnknownName, match="There is no credit"):
        parse(expression)


# Options


def test_options_of_a_single_rule_are_its_own() -> None:
    sampled = batch([1, 0, 0.5, 0])
    assert same(parse("grpo", {"ddof": 0})(sampled), grpo(sampled, ddof=0))
    doubled = parse("2*grpo", {"ddof": 0})(sampled)
    assert close(scalars(doubled), 2 * scalars(grpo(sampled, ddof=0)), 1e-12)


@settings(max_examples=20)
@given(alone())
def test_options_of_a_sum_are_given_by_rule(sampled: list[Trajectory]) -> None:
    rule = parse("grpo + anchor", {"grpo": {"ddof": 0}, "anchor": {"gamma": 0.5}})
    expected = weighted((1.0, grpo(sampled, ddof=0)), (1.0, anchor(sampled, gamma=0.5)))
    assert close(torch.cat(rule(sampled).advantages), expected, 1e-12)


def test_an_option_that_no_rule_has_is_refused() -> None:
    with pytest.raises(RecipeError, match="'grpo' has no option 'gama'"):
        parse("grpo", {"gama": 1})
    with pytest.raises(RecipeError, match="'anchor' has no option 'ddof'"):
        parse("grpo + anchor", {"anchor": {"ddof": 0}})
    with pytest.raises(RecipeError, match=r"one table for each of grpo, anchor, but got 'gamma'"):
        parse("grpo + anchor", {"gamma": 0.5})
    with pytest.raises(RecipeError, match=r"got 'rloo' = \{\}"):
        parse("grpo + anchor", {"rloo": {}})


def test_options_say_what_may_be_given() -> None:
    assert options("anchor")["gamma"] == 0.95
    assert options("drgrpo + anchor") == {"drgrpo": {}, "anchor": options("anchor")}
    assert "state" in options("spiral") and "state" in options("rloo + spiral")
    assert "state" not in options("rloo + anchor")


def test_needs_are_those_of_all_rules() -> None:
    assert needs("rloo") == {Need.GROUP}
    assert needs("gae + 0.5*anchor") == {Need.VALUE, Need.GROUP, Need.ANCHOR}
    assert needs(OWN) == frozenset()


# Targets and state


def valued(outcome: float, member: int = 0) -> Trajectory:
    return rollout([0, 0], outcome=outcome, member=member, values=[0.25, 0.5], role=["a", "b"])


def test_the_critics_targets_are_those_of_the_only_rule_that_has_some() -> None:
    sampled = [valued(1), valued(0, 1)]
    credit, alone = parse("rloo + 0.5*gae")(sampled), gae(sampled)
    assert credit.returns is not None and alone.returns is not None
    assert torch.equal(torch.cat(credit.returns), torch.cat(alone.returns))
    assert (
        parse("rloo + anchor")(
            [replace(t, turns=tuple(replace(k, anchor="x") for k in t.turns)) for t in sampled]
        ).returns
        is None
    )


@settings(max_examples=5)
@given(trajectories())
def test_a_rule_says_whether_it_sets_targets(sampled: list[Trajectory]) -> None:
    for part in components(Kind.CREDIT).values():
        assert (part.function(sampled).returns is not None) == part.targets, part.name


def test_two_rules_cannot_teach_one_critic() -> None:
    with pytest.raises(RecipeError, match="'gae' and 'turn_gae' both set targets"):
        parse("gae + turn_gae")


def targeted(batch: Sequence[Trajectory]) -> Credit:
    """A rule that sets targets without declaring them."""
    return replace(
        broadcast(batch, [0.0] * len(batch)), returns=[torch.zeros(t.tokens) for t in batch]
    )


def test_a_second_teacher_that_no_one_knew_of_is_found_when_it_teaches() -> None:
    sampled = [rollout([0.0], tokens=1, values=[0.5])]
    rule = parse(f"gae + {__name__}:targeted")
    with pytest.raises(InputError, match="both set targets"):
        rule(sampled)


def test_states_of_a_sum_are_kept_apart_and_given_back() -> None:
    first, second = [valued(1), valued(0.5, 1)], [valued(0, 2), valued(1, 3)]
    rule = parse("spiral + 0.5*running")
    alone_1, alone_2 = spiral(first), running(first)
    one = rule(first)
    assert one.state == {
        **{f"spiral.{name}": value for name, value in alone_1.state.items()},
        **{f"running.{name}": value for name, value in alone_2.state.items()},
    }
    two = rule(second, state=one.state)
    expected = weighted(
        (1.0, spiral(second, state=alone_1.state)), (0.5, running(second, state=alone_2.state))
    )
    assert close(torch.cat(two.advantages), expected, 1e-12)


def test_a_single_rule_keeps_its_state_under_its_own_names() -> None:
    first, second = [valued(1)], [valued(0, 1)]
    for expression, weight in (("running", 1.0), ("2*running", 2.0)):
        rule = parse(expression)
        state = rule(first).state
        assert state == running(first).state
        after = rule(second, state=state)
        assert close(
            torch.cat(after.advantages), weighted((weight, running(second, state=state))), 1e-12
        )


def test_a_sum_without_memory_takes_and_returns_none() -> None:
    assert parse("rloo + drgrpo")(batch([1, 0])).state == {}


def test_an_empty_batch_has_no_advantages() -> None:
    assert parse("rloo + drgrpo")([]).advantages == []
    assert whiten(rloo([]), []).advantages == []


# Whitening


def families() -> tuple[list[Trajectory], Credit]:
    """AgentRL's example: four tokens of one family of tasks, two of another."""
    first = batch([0.5, -0.5], turns=2, task="maze")
    second = batch([0.1, -0.1], task="shop", group=1)
    sampled = [*first, *second]
    return sampled, broadcast(sampled, [t.outcome for t in sampled])


def test_whitening_over_tasks_is_agentrls() -> None:
    sampled, credit = families()
    whitened = whiten(credit, sampled, "task", ddof=0)
    assert close(torch.cat(whitened.advantages), [1, 1, -1, -1, 1, -1])
    over_batch = torch.cat(whiten(credit, sampled, "batch", ddof=0).advantages)
    assert float(over_batch[4]) < 0.5, "the family with small rewards is drowned"


def test_whitening_over_the_batch_is_ppos() -> None:
    sampled = [rollout([0, 0], outcome=1, tokens=2, values=[0.2, 0.3, 0.5, 0.6])]
    raw = gae(sampled, lam=0.95, whiten=False)
    credit = whiten(raw, sampled)
    assert close(credit.advantages[0], [1.0540, 0.6068, -0.5643, -1.0966])
    assert credit.returns is raw.returns


@pytest.mark.parametrize("scope", ["batch", "task", "group", "trajectory"])
@given(sampled=trajectories(groups=(2, 3)), seed=st.integers(0, 2**32 - 1))
def test_each_scope_gets_mean_zero_and_deviation_one(
    scope: str, sampled: list[Trajectory], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    numbers = [
        torch.randn(t.tokens, generator=generator, dtype=torch.float64) + 3.0 for t in sampled
    ]
    whitened = whiten(Credit(numbers, state={"a": 1.0}), sampled, scope)
    assert whitened.state == {"a": 1.0}
    names = {
        "batch": ["" for _ in sampled],
        "task": [t.task for t in sampled],
        "group": [t.group for t in sampled],
        "trajectory": [str(t.key) for t in sampled],
    }[scope]
    for name in set(names):
        members = [i for i, own in enumerate(names) if own == name]
        tokens = torch.cat([whitened.advantages[i] for i in members])
        if len(tokens) == 1:
            assert float(tokens[0]) == 0.0
            continue
        assert float(tokens.mean()) == pytest.approx(0, abs=1e-6)
        assert float(tokens.std()) == pytest.approx(1, abs=1e-4)


def test_equal_advantages_whiten_to_exactly_zero() -> None:
    sampled = batch([0.1, 0.1, 0.1])
    assert scalars(whiten(broadcast(sampled, [0.1] * 3), sampled)).tolist() == [0, 0, 0]


@given(trajectories())
def test_whitening_over_trajectories_leaves_only_differences_within_them(
    sampled: list[Trajectory],
) -> None:
    whitened = whiten(drgrpo(sampled), sampled, "trajectory")
    assert all(bool((a == 0).all()) for a in whitened.advantages)


def test_an_unknown_scope_is_named() -> None:
    sampled, credit = families()
    with pytest.raises(UnknownName, match=r"no scope of whitening 'tasks'.*Did you mean 'task'"):
        whiten(credit, sampled, "tasks")
