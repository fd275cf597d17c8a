"""The messages protocol: requests, responses, thinking and limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palaestra.core.errors import ContextTooLong, InfrastructureFault, InputError
from palaestra.core.message import ToolCall, assistant, system, tool_result, user
from palaestra.core.model import Finish, Prompt, Sampling
from palaestra.core.tool import Tool
from palaestra.models.remote.anthropic_protocol import ANTHROPIC, UNLIMITED
from palaestra.models.remote.remote_model import RemoteModel
from palaestra.models.remote.remote_names import parse_remote
from tests.models import recorded
from tests.models.remote.provider_server import GOOD, SOON, Server, ask, responds, streams
from tests.models.remote.test_remote_model import PNG, server

__all__ = ["server"]  # the fixture

TOOL = Tool("shop.find", "Find a thing.", {"type": "object", "properties": {}})
REPLIED: dict[str, Any] = {
    "content": [
        {"type": "thinking", "thinking": "left or right?"},
        {"type": "text", "text": "go "},
        {"type": "text", "text": "left"},
    ],
    "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
    },
}


def claude(server: Server, **options: Any) -> RemoteModel:
    given = {"attempts": 3, "timeout": 5.0, "stream": False} | options
    return RemoteModel("claude", server.url, protocol=ANTHROPIC, **given)


def test_a_reply_of_the_messages_protocol_is_its_texts_and_its_cost(server: Server) -> None:
    server.answers = [responds(200, REPLIED)]
    remote = claude(server)
    reply = ask(remote)
    assert (reply.text, reply.finish) == ("go left", Finish.STOP)
    assert (reply.prompt_tokens, reply.computed_tokens) == (125, 25)
    assert reply.policy == f"anthropic:claude@{server.url}"
    assert remote.traffic.sampled_tokens == 7


def test_the_system_prompt_is_separate_and_turns_alternate(server: Server) -> None:
    server.answers = [responds(200, REPLIED)]
    conversation = (
        system("Act."),
        user("a key"),
        assistant("take it"),
        tool_result("taken"),
        user("a door"),
        assistant(" "),
        system("Be quick."),
        user("it is locked"),
    )
    ask(claude(server), *conversation, sampling=Sampling(0.3, 9, stop=("END",)))
    assert server.paths == ["/v1/messages"]
    assert server.requests == [
        {
            "model": "claude",
            "system": "Act.\n\nBe quick.",
            "messages": [
                {"role": "user", "content": "a key"},
                {"role": "assistant", "content": "take it"},
                {"role": "user", "content": "taken\n\na door\n\nit is locked"},
            ],
            "temperature": 0.3,
            "max_tokens": 9,
            "stop_sequences": ["END"],
        }
    ]


def test_the_key_is_sent_only_where_one_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "k-123")
    server.answers = [responds(200, REPLIED)]
    ask(parse_remote(f"anthropic:claude@{server.url}?stream=off#SOME_KEY"))
    headers = server.headers[0]
    assert "k-123" in headers.get("x-api-key", "") + headers.get("authorization", "")
    assert headers["anthropic-version"]
    ask(parse_remote(f"anthropic:claude@{server.url}?stream=off"))
    assert not {"x-api-key", "authorization"} & set(server.headers[1])


def test_a_cut_reply_of_the_messages_protocol_reports_it(server: Server) -> None:
    server.answers = [responds(200, REPLIED | {"stop_reason": "max_tokens"})]
    assert ask(claude(server)).finish is Finish.LENGTH


def test_an_overloaded_server_of_the_messages_protocol_is_asked_again(server: Server) -> None:
    server.answers = [
        responds(529, {"error": {"type": "overloaded_error"}}, **SOON),
        responds(200, REPLIED),
    ]
    remote = claude(server)
    assert ask(remote).text == "go left"
    assert remote.traffic.cuts == 1


def test_a_prompt_that_is_too_long_for_the_messages_protocol(server: Server) -> None:
    output = {"error": {"message": "prompt is too long: 250000 tokens > 200000 maximum"}}
    server.answers = [responds(400, output)]
    with pytest.raises(ContextTooLong):
        ask(claude(server))


@pytest.mark.parametrize(
    "body",
    [
        {},
        GOOD,
        {"content": "go"},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "tool_use", "id": "a", "name": "b", "input": "c"}]},
        {"content": [{"type": "text", "text": 3}]},
        {"content": None},
        REPLIED | {"usage": {"input_tokens": "x"}},
    ],
    ids=str,
)
def test_rubbish_in_the_messages_protocol_is_an_error(server: Server, body: Any) -> None:
    server.answers = [responds(200, body)]
    with pytest.raises(InfrastructureFault, match="messages protocol"):
        ask(claude(server))


def test_the_messages_protocol_knows_no_log_probabilities(server: Server) -> None:
    with pytest.raises(InputError, match="logprobs"):
        parse_remote(f"anthropic:claude@{server.url}?logprobs=on")


# ── tools and images ─────────────────────────────────────────────────────────

CHOICES: dict[str, tuple[Sampling, Any]] = {
    "auto": (Sampling(), None),
    "none": (Sampling(tool_choice="none"), {"type": "none"}),
    "required": (Sampling(tool_choice="required"), {"type": "any"}),
    "one": (Sampling(tool_choice="shop.find"), {"type": "tool", "name": "shop_find"}),
    "not parallel": (
        Sampling(parallel_tool_calls=False),
        {"type": "auto", "disable_parallel_tool_use": True},
    ),
}


@pytest.mark.parametrize(("sampling", "choice"), CHOICES.values(), ids=CHOICES.keys())
def test_tools_and_how_to_use_them_are_sent(
    server: Server, sampling: Sampling, choice: Any
) -> None:
    server.answers = [responds(200, REPLIED)]
    ask(claude(server), sampling=sampling, tools=(TOOL,))
    (request,) = server.requests
    schema = {"type": "object", "properties": {}}
    assert request["tools"] == [
        {"name": "shop_find", "description": "Find a thing.", "input_schema": schema}
    ]
    assert request.get("tool_choice") == choice


def test_results_come_first_in_the_next_turn_with_their_images_and_errors(server: Server) -> None:
    server.answers = [responds(200, REPLIED)]
    calls = [ToolCall("shop.find", {"a": 1}, "a"), ToolCall("shop.find", {}, "b")]
    ask(
        claude(server),
        user("?"),
        assistant("Looking.", tool_calls=calls),
        user("Hurry."),
        tool_result("none left", id="b", error=True),
        tool_result("found", id="a", images=(PNG,)),
        tools=(TOOL,),
    )
    image = {"type": "base64", "media_type": "image/png", "data": PNG.base64}
    shown = [{"type": "text", "text": "found"}, {"type": "image", "source": image}]
    failed = {"type": "tool_result", "tool_use_id": "b", "content": "none left", "is_error": True}
    assert server.requests[0]["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "a", "name": "shop_find", "input": {"a": 1}},
                {"type": "tool_use", "id": "b", "name": "shop_find", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": shown},
                failed,
                {"type": "text", "text": "Hurry."},
            ],
        },
    ]


def test_a_prompt_without_tools_still_names_those_that_were_called(server: Server) -> None:
    server.answers = [responds(200, REPLIED)]
    called = assistant("", tool_calls=[ToolCall("shop.find", {}, "a")])
    ask(claude(server), user("?"), called, tool_result("ok", id="a"), user("Sum up."))
    (request,) = server.requests
    assert [tool["name"] for tool in request["tools"]] == ["shop_find"]
    assert request["tool_choice"] == {"type": "none"}


# ── limits and thinking ──────────────────────────────────────────────────────


def test_without_a_limit_the_models_own_is_asked_for_once(server: Server) -> None:
    server.models = {"claude": {"type": "model", "id": "claude", "max_tokens": 64_000}}
    server.answers = [streams(recorded.CLAUDE_STREAM, named=True)]
    remote = claude(server, stream=True)

    async def run() -> None:
        prompt = Prompt((user("?"),), None, Sampling(), 0)
        await asyncio.gather(*(remote.generate(prompt) for _ in range(3)))
        await remote.close()

    asyncio.run(run())
    assert [request["max_tokens"] for request in server.requests] == [64_000] * 3
    assert server.asked_for == ["/v1/models/claude"]


def test_a_server_that_tells_no_limit_gets_a_usual_one(server: Server) -> None:
    server.answers = [responds(200, REPLIED)]
    ask(claude(server, attempts=1), sampling=Sampling())
    assert server.requests[0]["max_tokens"] == UNLIMITED


def test_an_effort_asks_for_thinking(server: Server) -> None:
    server.answers = [responds(200, REPLIED)]
    for effort in ("minimal", "high", "none"):
        ask(claude(server), sampling=Sampling(reasoning_effort=effort, max_tokens=4096))
    low, high, none = server.requests
    assert (low["output_config"], low["thinking"]) == ({"effort": "low"}, {"type": "adaptive"})
    assert (high["output_config"], high["thinking"]) == ({"effort": "high"}, {"type": "adaptive"})
    assert "output_config" not in none and none["thinking"] == {"type": "disabled"}


def test_a_forced_call_is_not_thought_about(server: Server) -> None:
    server.answers = [responds(200, REPLIED)]
    sampling = Sampling(reasoning_effort="high", tool_choice="required", max_tokens=4096)
    ask(claude(server), sampling=sampling, tools=(TOOL,))
    assert "thinking" not in server.requests[0]


def test_an_overload_within_a_stream_is_asked_again(server: Server) -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.answers = [
        streams([*recorded.CLAUDE_STREAM[:3], overloaded], named=True),
        streams(recorded.CLAUDE_STREAM, named=True),
    ]
    reply = ask(claude(server, stream=True))
    assert reply.text == "I'll check both cities." and len(server.requests) == 2
    server.answers = [streams([*recorded.CLAUDE_STREAM[:3], overloaded], named=True)]
    with pytest.raises(InfrastructureFault, match=r"broke off its answer.*Overloaded"):
        ask(claude(server, stream=True, attempts=1))


def test_a_stream_of_messages_that_breaks_off_is_asked_for_again(server: Server) -> None:
    events = recorded.CLAUDE_STREAM
    server.answers = [streams(events, named=True, cut=5), streams(events, named=True)]
    assert ask(claude(server, stream=True)).text == "I'll check both cities."


def test_a_reply_beyond_the_models_window_was_cut(server: Server) -> None:
    server.answers = [responds(200, REPLIED | {"stop_reason": "model_context_window_exceeded"})]
    assert ask(claude(server)).finish is Finish.LENGTH
