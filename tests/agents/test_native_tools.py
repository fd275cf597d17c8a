"""Agents with native tools: schemas go out, calls come back, results refer to calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palaestra.agents.function_calling import ToolsAgent
from palaestra.agents.react import CALLS, ReActAgent
from palaestra.core.agent import Agent
from palaestra.core.environment import Action, Capability
from palaestra.core.episode import Episode
from palaestra.core.message import ToolCall, assistant
from palaestra.core.model import Finish, Generation, Model, Prompt, Sampling
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.core.tool import ACT
from palaestra.environments.authoring import ToolWorld, tool
from palaestra.models.renderers.tool_conventions import read_reply
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.agents.test_acting import Door, called
from tests.core.small import run_episode
from tests.models.renderers.templating import NAMES, renderer

LONG = Sampling(max_tokens=400)


class Boxes(ToolWorld, capabilities={Capability.ORACLE}):
    """Open box 2 and box 3."""

    def begin(self, task: Task) -> str:
        self.state = {"open": []}
        return "three boxes"

    @tool
    def look(self, box: int, lid: bool = True) -> str:
        """Open a box."""
        self.state["open"].append(box)
        return f"box {box} is open"

    def verdict(self) -> bool | None:
        return True if {2, 3} <= set(self.state["open"]) else None

    def oracle(self) -> list[Action]:
        left = [box for box in (2, 3) if box not in self.state["open"]]
        return [self.call("look", box=box) for box in left]


def native(*script: str, name: str = "qwen2_5") -> ScriptedModel:
    return ScriptedModel(script, renderer=renderer(name))


def boxes(agent: Agent, model: Model) -> Episode:
    world = LocalEnvironment(Boxes())
    if isinstance(model, ExpertModel):
        return run_episode(agent, model.for_environment(world), world, sampling=LONG)
    return run_episode(agent, model, world, sampling=LONG)


@pytest.mark.parametrize("agent", [ToolsAgent(), ReActAgent()])
def test_calls_are_made_in_order_and_answered_by_id(agent: Agent) -> None:
    both = "Two at once.\n" + called("look", box=1) + called("look", box=2)
    episode = boxes(agent, native(both, called("look", box=3)))
    assert episode.outcome == Outcome.success()
    assert [step.call for step in episode.steps] == [0, 0, 1]
    first, second = episode.calls
    assert first.tools == Boxes().tools and second.parent == first.index
    assert first.reply.text == "Two at once."
    calls = first.reply.tool_calls
    assert [call.arguments for call in calls] == [{"box": 1}, {"box": 2}]
    assert [step.action.call for step in episode.steps[:2]] == list(calls)
    results = [message.tool_results[0] for message in second.messages]
    assert [result.id for result in results] == [call.id for call in calls]
    assert [result.text for result in results] == ["box 1 is open", "box 2 is open"]


@pytest.mark.parametrize("name", NAMES)
def test_a_session_holds_the_tokens_of_each_template(name: str) -> None:
    thought = "Well." if name == "minimax" else ""  # whose prompts open one
    script = [
        assistant(
            "", reasoning=thought, tool_calls=[ToolCall("look", {"box": box}, f"call0000{box}")]
        )
        for box in (1, 2, 3)
    ]
    episode = boxes(ToolsAgent(), ScriptedModel(script, renderer=renderer(name)))
    assert episode.outcome == Outcome.success()
    assert [call.parent for call in episode.calls] == [None, 0, 1]  # one branch
    tokens = episode.graph.tokens(2)
    assert tokens == [token for call in episode.calls for token in (*call.prompt, *call.completion)]
    render = renderer(name)
    whole = [*episode.graph.conversation(2)]
    prompt = render.start(whole[:-1], Boxes().tools)
    shown = [
        "".join(render.token_strings(t)) for t in (tokens, [*prompt, *episode.calls[2].completion])
    ]
    # Qwen 3 writes an empty thought before its last reply only.
    one, other = (text.replace("<think>\n\n</think>\n\n", "") for text in shown)
    assert one == other


def test_words_and_calls_that_do_not_fit_are_answered_by_the_environment() -> None:
    script = ["Shall I?", called("fly", to="Rome"), "<tool_call>\n{", called("look", box="x")]
    episode = boxes(ToolsAgent(), native(*script, called("look", box=2) + called("look", box=3)))
    assert [step.transition.valid for step in episode.steps] == [False] * 4 + [True] * 2
    assert "There is no tool 'fly'" in episode.steps[1].transition.observation.text
    assert episode.calls[2].messages[0].tool_results[0].error
    assert episode.calls[2].reply.text == "<tool_call>\n{"  # malformed: nothing of it is lost
    assert episode.outcome == Outcome.success()


def test_tools_that_come_later_are_offered_when_they_come() -> None:
    model = native(called("take_key"), called("open"))
    episode = run_episode(ToolsAgent(), model, LocalEnvironment(Door()), sampling=LONG)
    assert episode.outcome == Outcome.success()
    assert [[tool.name for tool in call.tools] for call in episode.calls] == [
        ["take_key"],
        ["take_key", "open"],
    ]
    assert [call.parent for call in episode.calls] == [None, None]  # the prompt is another one


def test_calls_after_the_end_are_not_made() -> None:
    script = called("look", box=2) + called("look", box=3) + called("look", box=1)
    episode = boxes(ToolsAgent(), native(script))
    assert episode.outcome == Outcome.success() and len(episode.steps) == 2


def test_an_environment_of_words_has_one_tool() -> None:
    episode = run_episode(ToolsAgent(), native(*[called("act", action="up")] * 3), sampling=LONG)
    assert episode.outcome == Outcome.success()
    assert [step.action for step in episode.steps] == [Action("up")] * 3
    assert episode.calls[0].tools == (ACT,)


def test_react_thinks_in_words_of_its_own_where_there_are_no_tools() -> None:
    episode = run_episode(ReActAgent(), native(*["Thought: up.\nAction: up"] * 3), sampling=LONG)
    assert episode.outcome == Outcome.success() and episode.calls[0].tools == ()


@pytest.mark.parametrize("agent", [ToolsAgent(), ReActAgent(confidence=True)])
def test_the_expert_demonstrates_native_calls(agent: Agent) -> None:
    episode = boxes(agent, ExpertModel(agent, renderer("qwen2_5")))
    assert episode.outcome == Outcome.success()
    calls = [call for made in episode.calls for call in made.reply.tool_calls]
    assert [ToolCall(call.name, call.arguments) for call in calls] == [
        ToolCall("look", {"box": 2}),
        ToolCall("look", {"box": 3}),
    ]
    if isinstance(agent, ReActAgent):
        assert CALLS in episode.calls[0].messages[0].text
        assert "Confidence: 1" in episode.calls[0].reply.text


def test_only_the_last_exchanges_are_shown_with_their_results() -> None:
    script = [called("look", box=box) for box in (1, 1, 2, 3)]
    # by order, as each prompt shows one reply
    episode = boxes(ReActAgent(history=1), Saying(*script))
    assert episode.outcome == Outcome.success()
    roles = [m.role for m in episode.graph.conversation(3)]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    opening = next(m for m in episode.graph.conversation(3) if m.role == "user").text
    assert opening.startswith("three boxes") and opening.endswith("box 1 is open")


def test_without_native_tools_the_text_form_stays() -> None:
    episode = boxes(ToolsAgent(), ScriptedModel([called("look", box=2) + called("look", box=3)]))
    assert episode.outcome == Outcome.success()
    assert episode.calls[0].tools == () and "<tools>" in episode.calls[0].messages[0].text


def test_reasoning_that_the_template_strips_begins_a_new_branch() -> None:
    """Qwen 3 drops thoughts at the next user message: no sampled token is changed."""
    model = Saying(
        "<think>\nWhich?\n</think>\n\n" + called("look", box=2), "Well?", called("look", box=3)
    )
    episode = run_episode(ToolsAgent(), model, LocalEnvironment(Boxes()), sampling=LONG)
    assert episode.outcome == Outcome.success()
    assert episode.calls[0].reply.reasoning == "Which?"
    assert [call.parent for call in episode.calls] == [None, 0, None]
    last = "".join(renderer("qwen3").token_strings(episode.calls[2].prompt))
    assert "Which?" not in last and "box 2 is open" in last  # what the template makes of it
    assert "Which?" in "".join(renderer("qwen3").token_strings(episode.graph.tokens(1)))


class Saying(Model):
    """Replies given texts, token for token."""

    name = "saying"
    native_tools = True

    def __init__(self, *texts: str) -> None:
        self.renderer, self.texts = renderer("qwen3"), list(texts)

    async def generate(self, prompt: Prompt) -> Generation:
        assert self.renderer is not None
        tokens = tuple(self.renderer.reply(self.texts.pop(0)))
        reply = read_reply(self.renderer, prompt, self.renderer.text(tokens))
        zeros = (0.0,) * len(tokens)
        generation = Generation(reply.text, tokens, zeros, Finish.STOP, self.name, 0)
        return replace(generation, reasoning=reply.reasoning, tool_calls=reply.tool_calls)
