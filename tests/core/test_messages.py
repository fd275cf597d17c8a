"""Messages with parts, and what a session does with tools, calls and reasoning."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.agent import Agent
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import AgentFault, InputError
from palaestra.core.message import (
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    system,
    tool_result,
    user,
)
from palaestra.core.model import Sampling
from palaestra.core.outcome import Outcome
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.core.tool import ACT, Tool
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.store.database import Database
from tests.core.small import Stairs, renderer
from tests.store import samples

PNG = b"\x89PNG\r\n\x1a\n"
KEY, TASK = Key("test", 0), Task("train/0", "stairs", 0)
UP = ToolCall("act", {"action": "up"}, "c1")


def test_a_reply_is_its_reasoning_its_words_and_its_calls_in_that_order() -> None:
    reply = assistant("I go.", reasoning="Up is good.", signature="s", tool_calls=[UP])
    assert reply.parts == (Reasoning("Up is good.", "s"), Text("I go."), UP)
    assert (reply.text, reply.reasoning, reply.tool_calls) == ("I go.", "Up is good.", (UP,))
    assert assistant("", tool_calls=[UP]).parts == (UP,)
    answer = tool_result("You are up.", id="c1", error=True, name="act")
    assert answer.tool_results == (ToolResult("You are up.", "c1", True, "act"),)
    assert answer.text == "You are up."
    assert Message("user", (Text("a"), Text("b"))).text == "a\nb"


@pytest.mark.parametrize("parts", ["Go left.", ["Go left."], ("Go left.",)])
def test_a_text_in_place_of_parts_is_refused_with_the_remedy(parts: Any) -> None:
    with pytest.raises(InputError, match=r"not .*Go left.*write user\('…'\)"):
        Message("user", parts)


def test_an_image_is_known_by_its_bytes_and_is_one_that_models_read() -> None:
    image = Image.of(PNG + b"1")
    assert (image.media_type, image.size) == ("image/png", 9)
    assert image == Image.of(PNG + b"1") != Image.of(PNG + b"2")
    assert Image.of(b"RIFF1234WEBP").media_type == "image/webp"
    with pytest.raises(InputError, match="PNG, a JPEG, a GIF or a WebP"):
        Image.of(b"<svg/>")


@given(samples.messages)
def test_equal_messages_have_equal_hashes_whatever_they_hold(message: Message) -> None:
    again = Message(message.role, tuple(replace(part) for part in message.parts))
    assert again == message and hash(again) == hash(message)


class Climber(Stairs):
    """Stairs that are climbed by calls of a tool, and shown in a picture."""

    tools = (ACT,)

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        words = str(action.call.arguments["action"]) if action.call else action.text
        transition, signals = await super().step(Action(words))
        return replace(transition, observation=self._seen()), signals

    def _seen(self) -> Observation:
        return replace(super()._seen(), images=(Image.of(PNG + bytes([self.place])),))


class Calling(Agent):
    """Offers the tools, acts by all calls of a reply, and shows what came of them."""

    name, sees = "calling", True

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        talk = [system("Climb."), user(session.observation.text, *session.observation.images)]
        while not session.over:
            reply = await session.generate(talk, tools=session.tools)
            done = await session.act(reply.tool_calls, by=reply)
            talk.append(reply.message)
            for call, happened in zip(reply.tool_calls, done, strict=False):
                seen = happened.observation
                talk.append(tool_result(seen.text, id=call.id, images=seen.images))


RESPONSES = [
    assistant("", reasoning="two at once", signature="x", tool_calls=[UP, replace(UP, id="c2")]),
    assistant("once more", tool_calls=[replace(UP, id="c3"), replace(UP, id="c4")]),
]


class Tape:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, key: Key, event: Event) -> None:
        self.events.append(event)


def run_episode(
    agent: Agent, model: ScriptedModel, tape: Tape | None = None, past: Sequence[Event] = ()
) -> Episode:
    session = Session(KEY, TASK, Climber(), agent, {"agent": model}, journal=tape, past=past)
    return asyncio.run(session.run())


def test_several_calls_are_steps_of_one_reply_up_to_the_end_of_the_episode() -> None:
    episode = run_episode(Calling(), ScriptedModel(RESPONSES))
    assert episode.outcome == Outcome.success()
    assert [(step.call, step.action.call.id) for step in episode.steps if step.action.call] == [
        (0, "c1"), (0, "c2"), (1, "c3"),
    ]  # fmt: skip
    first, second = episode.calls
    assert first.reply == RESPONSES[0] and first.tools == (ACT,)
    assert second.parent == 0  # the same tools: the conversation continues
    assert [message.role for message in second.messages] == ["tool", "tool"]
    assert second.messages[0].images[0].data == PNG + b"\x01"


def test_acting_by_no_call_at_all_is_the_agents_error() -> None:
    class Idle(Calling):
        async def run(self, session: Session) -> None:
            with pytest.raises(AgentFault, match="no call"):
                await session.act([])

    run_episode(Idle(), ScriptedModel(RESPONSES))


def test_other_tools_start_a_new_root() -> None:
    other = Tool("look", "Look around.", {"type": "object", "properties": {}})

    class Changing(Calling):
        async def run(self, session: Session) -> None:
            talk = [user("go")]
            for tools in ((ACT,), (ACT, other), (ACT, other), (ACT,)):
                reply = await session.generate(talk, tools=tools)
                talk += [reply.message, user("on")]

    episode = run_episode(Changing(), ScriptedModel(lambda messages: "ok", native_tools=True))
    assert [call.parent for call in episode.calls] == [None, None, 1, 0]
    assert [len(call.tools) for call in episode.calls] == [1, 2, 2, 1]


def test_tools_for_a_model_that_takes_none_are_an_error_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"'scripted' does not support tools; describe them"):
        run_episode(Calling(), ScriptedModel(RESPONSES, native_tools=False))


def test_tools_for_a_renderer_without_a_form_for_them_are_words_in_the_prompt() -> None:
    model = ScriptedModel(["up"], renderer=renderer())
    (call,) = run_episode(Talking(), model).calls
    assert ACT.name in renderer().text(call.prompt)


class Talking(Calling):
    async def run(self, session: Session) -> None:
        await session.generate([user("go")], tools=session.tools)


def test_a_model_without_a_limit_gets_the_budgets() -> None:
    asked: list[int | None] = []

    class Asked(ScriptedModel):
        async def generate(self, prompt):  # type: ignore[no-untyped-def]
            asked.append(prompt.sampling.max_tokens)
            return await super().generate(prompt)

    model = Asked(RESPONSES)
    run_episode(Calling(), model)
    model.max_tokens = None
    run_episode(Calling(), model)
    assert asked == [64, 64, None, None]
    assert Sampling().max_tokens is None


@given(cut=st.integers(0, 5))
def test_an_episode_interrupted_anywhere_resumes_unchanged(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tape = Tape()
    whole = run_episode(Calling(), ScriptedModel(RESPONSES), tape)
    database = Database.open(tmp_path_factory.mktemp("cut") / "run.sqlite")
    for event in tape.events[:cut]:
        database.append(KEY, event)
    again = run_episode(Calling(), ScriptedModel(RESPONSES), None, database.past(KEY))
    assert [replace(call, seconds=0) for call in again.calls] == [
        replace(call, seconds=0) for call in whole.calls
    ]
    assert [replace(step, seconds=0) for step in again.steps] == [
        replace(step, seconds=0) for step in whole.steps
    ]
    database.close()


def test_equal_images_and_equal_tools_are_stored_once(tmp_path: Path) -> None:
    tape = Tape()
    episode = run_episode(Calling(), ScriptedModel(RESPONSES), tape)
    database = Database.open(tmp_path / "run.sqlite")
    for member in range(3):
        for event in tape.events:
            database.append(Key("test", 0, member), event)
        database.finish(replace(episode, key=Key("test", 0, member)))
    seen = {image for call in episode.calls for m in call.messages for image in m.images}
    seen |= {image for step in episode.steps for image in step.transition.observation.images}
    rows = database._connection.execute("SELECT sha256, length(data) FROM blob").fetchall()
    assert len(seen) == 4 and len(rows) == len(seen) + 1  # and the tools
    bodies = database._connection.execute("SELECT body FROM event").fetchall()
    assert not any("iVBOR" in body or "parameters" in body for (body,) in bodies)
    assert database.episode(Key("test", 0, 2)) == replace(episode, key=Key("test", 0, 2))
    database.close()
