"""Explaining one episode by all methods that can work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palaestra.core.errors import InputError
from palaestra.evaluation.attribution.base import store_attributions, stored_attributions
from palaestra.evaluation.attribution.counterfactual import Label
from palaestra.evaluation.attribution.explaining import explain
from tests.evaluation.attribution.worlds import LOOKUP, RIGHT, roll_out, worlds
from tests.evaluation.made import CRASH, MemoryStore

FAILED = (LOOKUP, "send('p-1')", "finish()")


def test_the_most_certain_method_speaks_first() -> None:
    found = explain(roll_out(FAILED), worlds, turns=20)
    assert [one.method for one in found.attributions] == ["oracle", "words"]
    assert found.attributions[0].turn == 1
    assert found.labels == (Label.USEFUL, Label.WRONG, Label.WRONG)
    assert found.unable == ()


def test_a_world_that_cannot_be_replayed_leaves_the_words() -> None:
    found = explain(roll_out(FAILED, environment="lottery"), worlds, turns=20)
    assert [one.method for one in found.attributions] == ["words"]
    assert "not deterministic" in found.unable[0]


def test_chance_is_tried_where_it_is_asked_for() -> None:
    found = explain(roll_out(FAILED), worlds, turns=20, methods=("chance",), samples=2)
    assert [one.method for one in found.attributions] == ["chance"]


def test_a_success_has_no_losing_turn() -> None:
    with pytest.raises(InputError, match="name a failed episode"):
        explain(roll_out(RIGHT), worlds, turns=20)


def test_what_the_agent_did_not_do_is_not_explained() -> None:
    with pytest.raises(InputError, match="the agent did not cause"):
        explain(replace(roll_out(FAILED), outcome=CRASH), worlds, turns=20)


def test_an_explanation_is_kept_beside_the_episode() -> None:
    class Store(MemoryStore):
        def put(self, name: str, document: object) -> None:
            self.values[name] = document

    store, episode = Store(), roll_out(FAILED)
    store_attributions(store, episode.key, explain(episode, worlds, turns=20).attributions)
    assert [(one["method"], one["turn"]) for one in stored_attributions(store, episode.key)] == [
        ("oracle", 1),
        ("words", 1),
    ]
    assert stored_attributions(store, replace(episode.key, group=9)) == []
