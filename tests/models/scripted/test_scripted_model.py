"""Scripted models: scripts, and the environment's own expert."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.agent import Agent
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Capability,
    Observation,
    Signals,
    Transition,
)
from palaestra.core.episode import Key
from palaestra.core.errors import EnvironmentFault, InfrastructureFault, InputError
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Finish, Generation, Model, Prompt, Sampling
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.models.local.weights import prepare
from palaestra.models.registry import check_model
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel


@pytest.fixture(scope="module")
def renderer() -> ChatMLRenderer:
    return ChatMLRenderer.from_folder(prepare("smollm2-135m", print))


def ask(model: Model, *messages: Message, max_tokens: int = 64) -> Generation:
    return asyncio.run(model.generate(Prompt(messages, None, Sampling(max_tokens=max_tokens), 0)))


def test_a_list_is_followed_reply_by_reply_within_a_conversation() -> None:
    model = ScriptedModel(["left", "right"])
    assert ask(model, user("?")).text == "left"
    assert ask(model, user("?"), assistant("left"), user("?")).text == "right"


def test_conversations_that_share_a_script_do_not_disturb_each_other() -> None:
    model = ScriptedModel(["left", "right"])
    assert [ask(model, user("?")).text for _ in range(3)] == ["left"] * 3


def test_a_function_answers_from_the_messages() -> None:
    model = ScriptedModel(lambda messages: messages[-1].text.upper())
    assert ask(model, user("go")).text == "GO"


def test_a_script_that_has_ended_is_an_error_that_reports_it() -> None:
    with pytest.raises(InfrastructureFault, match="asked for reply 2 and has 1"):
        ask(ScriptedModel(["left"]), user("?"), assistant("left"), user("?"))


def test_without_a_renderer_a_reply_has_no_tokens() -> None:
    reply = ask(ScriptedModel(["left"]), user("?"))
    assert (reply.tokens, reply.logprobs, reply.finish) == ((), (), Finish.STOP)


def test_with_a_renderer_a_reply_has_the_tokens_that_a_model_would_sample(
    renderer: ChatMLRenderer,
) -> None:
    reply = ask(ScriptedModel(["go left"], renderer=renderer), user("?"))
    assert list(reply.tokens) == renderer.reply("go left")
    assert reply.logprobs == (0.0,) * len(reply.tokens)


def test_a_scripted_reply_keeps_to_the_limit_of_tokens(renderer: ChatMLRenderer) -> None:
    reply = ask(ScriptedModel(["one two three"], renderer=renderer), user("?"), max_tokens=2)
    assert (reply.text, len(reply.tokens), reply.finish) == ("one two", 2, Finish.LENGTH)


# ── the expert ───────────────────────────────────────────────────────────────


class Corridor(AsyncEnvironment):
    """An environment that ends after three steps."""

    instructions = "Walk to the end."
    tools = ()
    capabilities = frozenset({Capability.ORACLE})

    def __init__(self, lost: bool = False) -> None:
        self.left = 3
        self.lost = lost

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self.left = 3
        return Observation("3 steps"), Signals()

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        self.left -= action.text == "walk"
        done = self.left == 0
        seen = Observation(f"{self.left} steps")
        return Transition(seen, float(done), terminated=done, success=done), Signals()

    async def oracle(self) -> list[Action]:
        return [] if self.lost else [Action("walk")] * self.left

    async def admissible(self) -> list[str]:
        return ["walk", "rest"]

    async def sample(self, seed: int) -> Action:
        return Action("rest")

    async def close(self) -> None:
        pass


class Walker(Agent):
    """An agent that writes `I walk` for the action `walk`."""

    name = "walker"

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        messages = [system(session.instructions), user(session.observation.text)]
        while not session.over:
            reply = await session.generate(messages)
            transition = await session.act(reply.text.removeprefix("I "))
            messages += [assistant(reply.text), user(transition.observation.text)]

    def phrase(self, action: Action) -> str:
        return f"I {action.text}"


def test_an_episode_with_the_expert_is_a_demonstration_in_the_agents_words(
    renderer: ChatMLRenderer,
) -> None:
    world, agent = Corridor(), Walker()
    models = {"agent": ExpertModel(agent, renderer).for_environment(world)}
    task = Task("train/0", "corridor", 0)
    episode = asyncio.run(Session(Key("demo", 0), task, world, agent, models).run())
    assert episode.outcome.solved
    assert [call.reply.text for call in episode.calls] == ["I walk"] * 3
    assert all(list(call.completion) == renderer.reply("I walk") for call in episode.calls)
    last = episode.graph.conversation(2)
    assert episode.graph.tokens(2) == [*renderer.start(last[:-1]), *renderer.reply("I walk")]


def test_an_expert_without_an_answer_is_the_environments_error() -> None:
    world = Corridor(lost=True)
    with pytest.raises(EnvironmentFault, match="oracle"):
        ask(ExpertModel(Walker()).for_environment(world), user("?"))


def test_an_expert_without_a_world_explains_how_to_bind_it() -> None:
    with pytest.raises(InputError, match="for_environment"):
        ask(ExpertModel(Walker()), user("?"))


@settings(max_examples=10, deadline=None)
@given(st.floats(0, 1), st.integers(0, 2**31))
def test_an_expert_errs_as_often_as_stated_and_by_its_seed(error: float, seed: int) -> None:
    model = ExpertModel(Walker(), error=error).for_environment(Corridor())

    async def output(count: int) -> list[str]:
        asked = [Prompt([user("?")], None, Sampling(), seed + n) for n in range(count)]
        return [(await model.generate(prompt)).text for prompt in asked]

    replies = asyncio.run(output(400))
    slips = sum(text == "I rest" for text in replies)
    assert abs(slips / 400 - error) < 0.15  # six standard deviations
    assert replies[:9] == asyncio.run(output(9))


@pytest.mark.parametrize("name", ["expert?error=2", "expert?error=often", "expert?slips=0.1"])
def test_an_error_rate_that_cannot_be_is_reported(name: str) -> None:
    with pytest.raises(InputError, match=r"from 0 to 1|'slips'"):
        check_model(name)
