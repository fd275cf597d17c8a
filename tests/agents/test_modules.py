"""A main agent with modules: who sees what, and how whole runs are reviewed and counted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

import pytest

from palaestra.agents.module_lines import MAIN, REVIEW
from palaestra.agents.modules import ModulesAgent
from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import CapabilityMissing
from palaestra.core.message import Message
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.learning.data.rows import rows_of
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.exchange.chat_jsonl import conversations
from tests.core.small import renderer


class Notes(Environment, capabilities={"oracle"}):
    """Two notes can be read; the answer is the sum of their numbers."""

    instructions = "read a, read b, or answer N."

    def reset(self, task: Task) -> Observation:
        self.read: set[str] = set()
        return Observation("What is the sum?")

    def step(self, action: Action) -> Transition:
        verb, _, what = action.text.partition(" ")
        if verb == "answer":
            right = what == "5"
            return Transition(Observation("Over."), float(right), terminated=True, success=right)
        if what not in ("a", "b"):
            return Transition(Observation("What?"), valid=False)
        self.read.add(what)
        return Transition(Observation({"a": "2", "b": "3"}[what]))

    def oracle(self) -> Sequence[Action]:
        left = [f"read {note}" for note in ("a", "b") if note not in self.read]
        return [Action(text) for text in (*left, "answer 5")]


class Changing(Notes, deterministic=False):
    """The same, as one that allows no trials."""


def main(last: Callable[[], str]) -> Callable[[Sequence[Message]], str]:
    """Return a main agent that has two notes read, and then gives the next of its answers."""

    def said(messages: Sequence[Message]) -> str:
        done = len(messages) // 2 - 1
        return ["file: a", "web: b"][done] if done < 2 else f"Finish: answer {last()}"

    return said


def module(messages: Sequence[Message]) -> str:
    done = messages[-1].text
    return f"Action: read {done}" if len(messages) == 2 else f"Report: it says {done}"


def roll_out(
    agent: str,
    *answers: str,
    review: Sequence[str] = (),
    environment: Environment | None = None,
) -> Episode:
    given = itertools.cycle(answers)
    models: dict[str, Model] = {
        "agent": ScriptedModel(main(lambda: next(given)), renderer=renderer()),
        "file": ScriptedModel(module, renderer=renderer()),
        "web": ScriptedModel(module, renderer=renderer()),
    }
    if review:
        verdicts = iter(review)
        models["reviewer"] = ScriptedModel(lambda messages: next(verdicts))
    world = LocalEnvironment(environment or Notes())
    task = Task("test/0", "notes", 0)
    return asyncio.run(
        Session(
            Key("test", 0), task, world, make_agent(agent), models, budget=Budget(turns=20)
        ).run()
    )


def taken(episode: Episode) -> list[str]:
    return [step.action.text for step in episode.steps]


RUN = ["read a", "read b"]


def test_modules_see_their_piece_and_the_main_agent_their_reports() -> None:
    episode = roll_out("modules", "5")
    assert episode.outcome.solved and taken(episode) == [*RUN, "answer 5"]
    asked = [call for call in episode.calls if call.role == "file"]
    assert [message.text for message in asked[0].messages][1:] == ["a"]
    assert "sum" not in " ".join(message.text for message in asked[-1].messages)
    final = [call for call in episode.calls if call.role == "agent"][-1]
    conversation = [m.text for m in episode.graph.conversation(final.index)]
    assert conversation[3::2] == ["file: it says 2", "web: it says 3"]
    acted = [episode.calls[step.call].role for step in episode.steps if step.call is not None]
    assert acted == ["file", "web", "agent"]


def test_a_verified_run_is_a_conversation_for_each_piece_of_work() -> None:
    episode = roll_out("modules", "5")
    rows = list(conversations(episode))
    assert sorted(row["role"] for row in rows) == ["agent", "file", "web"]
    assert all(row["solved"] for row in rows)
    assert len(rows_of(episode, "scripted")) == 3


@pytest.mark.parametrize(
    ("answers", "answer"),
    [(["4", "5", "5"], "5"), (["4", "5", "4"], "4"), (["6", "5", "4"], "6")],
)
def test_the_most_frequent_end_of_the_runs_is_taken_and_of_equals_the_first(
    answers: list[str], answer: str
) -> None:
    episode = roll_out("modules?votes=3", *answers)
    assert taken(episode) == [*RUN, f"answer {answer}"]
    assert episode.usage.tried == 6  # three runs of two actions
    finishes = [c for c in episode.calls if c.reply.text.startswith("Finish")]
    assert len(finishes) == 3
    assert episode.steps[-1].call == finishes[answers.index(answer)].index


def test_a_run_that_is_not_accepted_is_run_again_with_the_objection() -> None:
    said = "no: add both"
    episode = roll_out("modules?retries=2", "4", "5", review=[said, "Yes."])
    assert episode.outcome.solved
    firsts = [
        call.messages[-1].text
        for call in episode.calls
        if call.role == "agent" and MAIN[:20] in call.messages[0].text and len(call.messages) == 2
    ]
    assert len(firsts) == 2 and firsts[1].endswith(said) and said not in firsts[0]
    reviewed = [c for c in episode.calls if c.messages[0].text == REVIEW]
    assert "> Finish: answer 4" in reviewed[0].messages[1].text


def test_retries_end_and_the_last_run_stands() -> None:
    episode = roll_out("modules?retries=1", "4", "6", review=["no: wrong"])
    assert taken(episode)[-1] == "answer 6"


def test_one_run_needs_no_trials_and_votes_do() -> None:
    assert roll_out("modules", "5", environment=Changing()).outcome.solved
    with pytest.raises(CapabilityMissing, match="allows no trials"):
        roll_out("modules?votes=3", "5", environment=Changing())


def test_what_is_not_understood_is_said_and_pieces_end() -> None:
    models = {"agent": ScriptedModel(lambda messages: "hm" if len(messages) < 6 else "file: a")}
    models["file"] = ScriptedModel(lambda messages: "hm")
    agent = ModulesAgent(pieces=3, actions=2)
    world, task = LocalEnvironment(Notes()), Task("test/0", "notes", 0)
    episode = asyncio.run(Session(Key("test", 0), task, world, agent, models).run())
    assert not episode.steps and not episode.outcome.solved
    assert [call.role for call in episode.calls] == ["agent", "agent", "agent", "file", "file"]
    assert "not understood" in episode.calls[1].messages[-1].text


def test_an_expert_delegates_and_finishes() -> None:
    world, agent = LocalEnvironment(Notes()), make_agent("modules?retries=1&votes=2")
    models = {"agent": ExpertModel(agent, environment=world)}
    task = Task("test/0", "notes", 0)
    episode = asyncio.run(Session(Key("test", 0), task, world, agent, models).run())
    assert episode.outcome.solved and taken(episode) == [*RUN, "answer 5"]
