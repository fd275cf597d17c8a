"""The router of calls: the nearest cluster answers, or the general model where none is near."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.graph import Call
from palaestra.core.message import assistant, system, user
from palaestra.core.model import adapted
from palaestra.core.tool import Tool
from palaestra.learning.data.call_clusters import fit_router, last_message
from palaestra.models.call_router import CallRouter, RoutedModel, features, is_cluster
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Asking, renderer, run_episode
from tests.learning.made import call

GREET, COUNT = "hello there my friend", "seven plus five is how many"
LOOK = Tool("look", "Look around.", {"type": "object", "properties": {}})


def asked(*texts: str) -> list[Call]:
    made = (call(n, None, [1], [2]) for n in range(len(texts)))
    return [replace(c, messages=(user(text),)) for c, text in zip(made, texts, strict=True)]


def router() -> CallRouter:
    return fit_router(asked(GREET, COUNT), 2, 0.0, seed=0)


@given(st.text(), st.text())
def test_features_are_of_unit_length_and_tell_roles_and_tools_apart(one: str, other: str) -> None:
    found = features("agent", (), one)
    assert np.linalg.norm(found) in (0.0,) or abs(np.linalg.norm(found) - 1) < 1e-12
    assert (found == features("agent", (), one)).all()
    if one.split() != other.split():
        return
    assert (features("agent", (), one) == features("agent", (), other)).all()


def test_role_and_tools_are_features() -> None:
    plain = features("agent", (), GREET)
    assert (plain != features("planner", (), GREET)).any()
    assert (plain != features("agent", (LOOK,), GREET)).any()


def test_a_call_goes_to_the_cluster_of_calls_like_it_and_other_calls_to_none() -> None:
    found = router()
    greeting, counting = (found.choose("agent", (), text) for text in (GREET, COUNT))
    assert {greeting, counting} == {"cluster_1", "cluster_2"}
    wide = CallRouter(found.centres, 1.3)
    assert wide.choose("agent", (), "hello there") == greeting
    assert wide.choose("agent", (), "seven plus two is how many") == counting
    assert found.choose("agent", (), "open the pod bay doors") is None
    assert is_cluster("cluster_12") and not is_cluster("cluster_") and not is_cluster("planner")


@given(st.lists(st.text(min_size=1), min_size=2, max_size=20), st.floats(0, 0.9))
def test_no_more_than_the_asked_share_of_the_calls_falls_back(
    texts: list[str], fallback: float
) -> None:
    calls = asked(*texts, GREET, COUNT)
    found = fit_router(calls, 2, fallback, seed=0)
    chosen = [found.choose(c.role, c.tools, last_message(c)) for c in calls]
    assert chosen.count(None) <= fallback * len(calls) + 1e-9
    again = CallRouter.read(found.document())
    assert chosen == [again.choose(c.role, c.tools, last_message(c)) for c in calls]


def test_replies_are_recorded_under_who_gave_them_and_go_on_one_conversation() -> None:
    found = router()
    names = {name: adapted("policy", name) for name in found.names}
    clusters = {
        name: ScriptedModel(["up"] * 4, name=names[name], renderer=renderer()) for name in names
    }
    general = ScriptedModel(["up"] * 4, name="policy", renderer=renderer())
    prompts = [[system("Climb."), user(GREET)]]
    for text in (COUNT, "open the pod bay doors", GREET):
        prompts.append([*prompts[-1], assistant("up"), user(text)])
    model = RoutedModel(found, clusters, general)
    calls = run_episode(Asking(*prompts), model).calls
    by_text = {last_message(c): found.choose("agent", (), last_message(c)) for c in calls}
    wanted = [by_text[last_message(c)] for c in calls]
    assert [c.policy for c in calls] == [names.get(w or "", "policy") for w in wanted]
    assert len({c.policy for c in calls}) == 3
    assert [c.parent for c in calls] == [None, 0, 1, 2]  # no token is sampled or read twice
