"""Replies of adapters that do not learn are context, and change nothing in the other rows."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given

from palaestra.core.episode import Episode
from palaestra.core.graph import Call
from palaestra.core.model import adapted, adapter_role, is_of
from palaestra.learning.data.adapter_replies import learned_by, rechosen, speaking
from palaestra.learning.data.rows import rows_of
from palaestra.models.local.lora import OWN, add_lora
from palaestra.models.local.network import DecoderNetwork
from tests.learning.data.test_rows import PLANNER, branching
from tests.models.local.checkpoints import small_network


def network(*roles: str) -> DecoderNetwork:
    made = small_network(vocabulary=300)
    for role in roles:
        add_lora(made, 2, 0, role)
    assert made.adapters is not None
    made.adapters.by_role = {"agent": OWN, **{role: role for role in roles if role != OWN}}
    return made


ROLES = network(OWN, "planner")


def essence(rows: Any) -> list[Any]:
    return [(row.tokens, row.mask, row.logprobs, row.calls, row.roles) for row in rows]


@given(branching())
def test_only_rows_of_trained_adapters_are_left_and_they_are_as_before(made: Episode) -> None:
    every = rows_of(made, "policy")
    for trained, role in ((OWN, "agent"), ("planner", "planner")):
        (left,) = learned_by([made], "policy", ROLES, {trained})
        assert essence(rows_of(left, "policy")) == essence(r for r in every if r.roles == {role})
        assert [c.completion for c in left.calls] == [c.completion for c in made.calls]
    assert learned_by([made], "policy", ROLES, {OWN, "planner"}) == [made]


@given(branching())
def test_a_choice_of_adapters_splits_the_rows_and_loses_no_token(made: Episode) -> None:
    def odd(call: Call) -> str | None:
        return "cluster_1" if call.index % 2 else None

    (found,) = rechosen([made], "policy", odd)
    for before, after in zip(made.calls, found.calls, strict=True):
        if not is_of(before.policy, "policy"):
            assert after == before
        elif before.index % 2:
            assert after.policy == adapted("policy", "cluster_1")
        else:
            assert after.policy == "policy"
    trained = [
        sorted(
            t for r in rows_of(e, "policy") for t, on in zip(r.tokens, r.mask, strict=True) if on
        )
        for e in (made, found)
    ]
    assert trained[0] == trained[1]


def test_a_network_without_roles_learns_all() -> None:
    plain = small_network(vocabulary=300)
    episodes: list[Episode] = []
    assert learned_by(episodes, "policy", plain, ()) == episodes
    with torch.no_grad():
        assert plain.adapters is None


def test_who_spoke_is_said_by_adapter() -> None:
    assert adapter_role(PLANNER, "agent") == "planner"
    assert adapter_role("policy", "agent") == "agent"
    assert adapter_role(PLANNER + "|choices", "agent") == "planner"
    assert speaking([], "policy") == []
