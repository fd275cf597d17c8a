"""The agents: their prompts, their actions, and that each fits on a screen."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.agent_listing import entries, papers_in
from palaestra.agents.direct import ANSWER, REFLECTION, DirectAgent
from palaestra.agents.react import FORMAT, ReActAgent, action_of, confidence_of
from palaestra.agents.registry import AGENTS, agent_class, make_agent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.outcome import Outcome, Owner
from palaestra.evaluation.statistics.self_report import report_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer, run_episode

THOUGHT = "Thought: I am not there yet.\nAction: up"


def test_the_direct_agent_does_what_the_model_says() -> None:
    episode = run_episode(DirectAgent(), ScriptedModel([" up\n", "up", "up"], renderer=renderer()))
    assert episode.outcome == Outcome.success()
    assert [step.action.text for step in episode.steps] == ["up"] * 3
    conversation = episode.graph.conversation(2)
    roles = ["system", "user", *["assistant", "user"] * 2, "assistant"]
    assert [message.role for message in conversation] == roles
    assert conversation[2].text == " up\n"  # the words as they were, for the branch to go on


def test_a_reflection_takes_no_turn() -> None:
    script = ["down", REFLECTION, "up", "up", "up", "up"]
    agent = make_agent("direct?reflects=yes")
    episode = run_episode(agent, ScriptedModel(script, renderer=renderer()))
    assert episode.outcome == Outcome.success()
    assert REFLECTION not in [step.action.text for step in episode.steps]
    assert len(episode.calls) == len(episode.steps) + 1
    said = episode.graph.conversation(2)
    assert [message.text for message in said][-3:] == [REFLECTION, ANSWER, "up"]
    assert [step.call for step in episode.steps] == [0, 2, *range(3, len(episode.calls))]


@pytest.mark.parametrize(
    ("name", "script"),
    [("direct?reflects=yes", [REFLECTION, REFLECTION, "up", "up", "up"]), ("direct", [REFLECTION])],
)
def test_other_reflections_are_actions(name: str, script: list[str]) -> None:
    script = [*script, "up", "up", "up"]
    episode = run_episode(make_agent(name), ScriptedModel(script, renderer=renderer()))
    assert REFLECTION in [step.action.text for step in episode.steps]


@pytest.mark.parametrize("name", ["direct", "players", "react"])
def test_an_append_only_agent_gives_one_branch(name: str) -> None:
    agent = agent_class(name)()
    script = [agent.phrase(Action("up"))] * 3
    graph = run_episode(agent, ScriptedModel(script, renderer=renderer())).graph
    assert len(list(graph.branches())) == 1 and [c.parent for c in graph.calls] == [None, 0, 1]


@pytest.mark.parametrize("name", ["direct", "react"])
@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_window_shows_the_task_and_the_last_exchanges(name: str, keep: int) -> None:
    agent = make_agent(f"{name}?history={keep}")
    script = [agent.phrase(Action("up"))] * 3
    episode = run_episode(agent, ScriptedModel(script, renderer=renderer()))
    assert episode.outcome == Outcome.success()
    first = episode.graph.conversation(0)[1].text
    for number in range(3):
        shown = episode.graph.conversation(number)[:-1]
        assert shown[1].text.startswith(first)
        assert sum(message.role == "assistant" for message in shown) == min(number, keep)
        seen = first if number == 0 else episode.steps[number - 1].transition.observation.text
        assert shown[-1].text.endswith(seen)
    parents = [None, *(call if call < keep else None for call in range(2))]
    assert [call.parent for call in episode.graph.calls] == parents


def test_a_window_that_holds_the_whole_past_is_the_append_only_agent() -> None:
    output = [ScriptedModel(["up"] * 3, renderer=renderer()) for _ in range(2)]
    plain, wide = (
        run_episode(DirectAgent(), output[0]),
        run_episode(DirectAgent(history=9), output[1]),
    )
    sent = [
        [(call.parent, call.prompt, call.completion) for call in episode.calls]
        for episode in (plain, wide)
    ]
    assert sent[0] == sent[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("direct?histry=3", "Did you mean 'history'"),
        ("direct?history=-1", "greater than or equal to 0"),
        ("direct?history=many", "is invalid"),
        ("players?history=3", "names no agent for a player 'history': There is no agent '3'"),
    ],
)
def test_a_wrong_option_of_an_agent_is_reported_in_one_sentence(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        make_agent(name)


def test_react_thinks_and_then_acts() -> None:
    episode = run_episode(ReActAgent(), ScriptedModel([THOUGHT] * 3))
    assert episode.outcome == Outcome.success()
    assert episode.calls[0].messages[0].text.endswith(FORMAT)


def test_a_reply_without_an_action_is_an_outcome_and_no_crash() -> None:
    model = ScriptedModel(lambda messages: "Thought: I wonder what to do.")
    episode = run_episode(ReActAgent(), model, budget=Budget(invalid_actions=3))
    assert (episode.outcome.kind, episode.outcome.owner) == ("unparsed", Owner.AGENT)
    assert episode.invalid_turns == len(episode.steps) == 3


def test_react_recovers_from_a_reply_without_an_action() -> None:
    script = ["Thought: hm", *[THOUGHT] * 3]
    episode = run_episode(ReActAgent(), ScriptedModel(script), budget=Budget(invalid_actions=3))
    assert episode.outcome == Outcome.success() and episode.invalid_turns == 1


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        (THOUGHT, "up"),
        ("Action: up", "up"),
        ("Action:\n  up  \nObservation: made up", "up"),
        ("Action: down\nThought: no.\nAction: up", "up"),
        ("Thought: hm\nAction:", ""),
        ("Thought: hm", ""),
        ("Hm.\nAction:", "Hm.\nAction:"),
        ("thought: hm\naction: up", "up"),
        ("**Thought:** hm\n**Action:** up", "up"),
        ("Thought: one transaction: none.\nAction: up", "up"),
        ("one transaction: none", "one transaction: none"),
        ("Action:\n```bash\nls\npwd\n```\nThat lists them.", "ls\npwd"),
        ("Action: `ls -l`", "ls -l"),
        ("Action: echo `ls` `pwd`", "echo `ls` `pwd`"),
        ("up", "up"),
        ("", ""),
    ],
)
def test_what_react_takes_for_the_action(reply: str, action: str) -> None:
    assert action_of(reply) == action


@pytest.mark.parametrize(
    ("reply", "chance"),
    [
        ("Action: up\nConfidence: 0.8", 0.8),
        ("Confidence: 0.2\nAction: up\nConfidence: 90 %", 0.9),
        ("Confidence: 1.", 1.0),
        ("Confidence: .5 or so", 0.5),
        ("Confidence: 8/10", None),
        ("Confidence: high", None),
        ("up", None),
    ],
)
def test_what_react_takes_for_its_confidence(reply: str, chance: float | None) -> None:
    assert confidence_of(reply) == chance


def test_react_states_its_confidence_on_request() -> None:
    agent = make_agent("react?confidence=yes")
    sure = f"{THOUGHT}\nConfidence: 0.7"
    episode = run_episode(agent, ScriptedModel([sure] * 3))
    assert "Confidence: how likely" in episode.calls[0].messages[0].text
    assert episode.outcome == Outcome.success() and episode.invalid_turns == 0
    assert report_of(episode) == 0.7
    assert action_of(agent.phrase(Action("up"))) == "up"
    assert confidence_of(agent.phrase(Action("up"))) == 1.0
    assert report_of(run_episode(ReActAgent(), ScriptedModel([THOUGHT] * 3))) is None


@given(st.text(), st.text())
def test_any_reply_of_a_model_is_taken_for_some_action(before: str, after: str) -> None:
    for reply in (before, f"{before}Action:{after}"):
        action = action_of(reply)
        assert action == action.strip() and action in reply


@given(st.sampled_from(["direct", "react"]), st.text("abc xyz", min_size=1).map(str.strip))
def test_a_demonstrated_action_is_understood_as_itself(name: str, words: str) -> None:
    agent, output = agent_class(name)(), agent_class(name)().phrase(Action(words))
    if words:
        assert (action_of(output) if isinstance(agent, ReActAgent) else output.strip()) == words


@pytest.mark.parametrize("name", [n for n, at in AGENTS.items() if ".agents." in at])
def test_an_agent_can_be_read_in_a_minute_or_two(name: str) -> None:
    source = inspect.getsource(importlib.import_module(AGENTS[name].split(":")[0]))
    assert len(source.splitlines()) <= 160


def test_the_page_of_agents_lists_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    again = "write the table anew: python -m palaestra.agents.agent_listing docs/agents.md"
    assert listed == set(AGENTS), again


def test_a_listing_names_the_papers_of_an_agent() -> None:
    shown = {agent.name: agent for agent in entries()}
    assert shown["react"].source == "Yao et al. 2023"
    assert shown["rci"].source == "Kim, Baldi and McAleer 2023"
    assert shown["deps"].roles == ("planner", "selector")
    text = "Sources: Ye et al. 2025 (SOP-Agent); Routine (2025), by (Nous Research, 2024)."
    assert papers_in(text) == ["Ye et al. 2025", "Routine 2025", "Nous Research 2024"]


def test_agents_are_found_by_name_or_by_module() -> None:
    assert agent_class("react") is ReActAgent
    assert agent_class("tests.core.small:Acting").name == "acting"
    assert all(issubclass(agent_class(name), Agent) for name in AGENTS)
    assert all(agent_class(name).name == name for name in AGENTS)


@pytest.mark.parametrize(
    "name", ["reakt", "no.such.module:Agent", "tests.core.small:Nobody", "tests.core.small:Stairs"]
)
def test_an_unknown_agent_is_an_error_with_the_nearest_name(name: str) -> None:
    with pytest.raises(UnknownName, match="Known: "):
        agent_class(name)
    if name == "reakt":
        with pytest.raises(UnknownName, match="Did you mean 'react'"):
            agent_class(name)
