"""The chat-completions protocol: requests, responses, and interrupted streams."""

from __future__ import annotations

from typing import Any

import pytest

from palaestra.core.errors import InfrastructureFault
from palaestra.core.message import ToolCall, assistant, tool_result, user
from palaestra.core.model import Finish, Sampling
from palaestra.core.tool import Tool
from tests.models import recorded
from tests.models.remote.provider_server import GOOD, SOON, Server, ask, responds, streams
from tests.models.remote.test_remote_model import PNG, model, server

__all__ = ["server"]  # the fixture

TOOL = Tool("shop.find", "Find a thing.", {"type": "object", "properties": {}})


def test_openai_tokens_that_the_server_held_were_not_computed(server: Server) -> None:
    usage = {
        "prompt_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens": 3,
    }
    server.answers = [responds(200, GOOD | {"usage": usage})]
    remote = model(server)
    reply = ask(remote)
    assert (reply.prompt_tokens, reply.computed_tokens) == (17, 1)
    assert (remote.traffic.prompt_tokens, remote.traffic.sampled_tokens) == (17, 3)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": "many"},
        {"prompt_tokens": -3},
        {"prompt_tokens": [1]},
        {"completion_tokens": 1e400},
        {"prompt_tokens_details": "none"},
        "much",
    ],
    ids=str,
)
def test_a_usage_that_is_nonsense_is_an_error(server: Server, usage: Any) -> None:
    server.answers = [responds(200, GOOD | {"usage": usage})]
    with pytest.raises(InfrastructureFault, match="usable choice"):
        ask(model(server))


def test_log_probabilities_that_are_not_finite_are_an_error(server: Server) -> None:
    output = (
        '{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"logprob": NaN}]}}]}'
    )
    server.answers = [responds(200, output)]
    with pytest.raises(InfrastructureFault, match="usable choice"):
        ask(model(server))


def test_an_answer_that_nests_without_end_is_an_error(server: Server) -> None:
    server.answers = [responds(200, "[" * 200_000)]
    with pytest.raises(InfrastructureFault, match="not JSON"):
        ask(model(server))


def test_an_account_without_credit_is_not_asked_again(server: Server) -> None:
    server.answers = [responds(429, {"error": {"code": "insufficient_quota"}})]
    with pytest.raises(InfrastructureFault, match="credit"):
        ask(model(server))
    assert len(server.requests) == 1


# ── tools ────────────────────────────────────────────────────────────────────


def answers_with(*calls: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}


def function(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


CHOICES: dict[str, tuple[Sampling, dict[str, Any]]] = {
    "auto": (Sampling(), {}),
    "none": (Sampling(tool_choice="none"), {"tool_choice": "none"}),
    "required": (Sampling(tool_choice="required"), {"tool_choice": "required"}),
    "one": (
        Sampling(tool_choice="shop.find"),
        {"tool_choice": {"type": "function", "function": {"name": "shop_find"}}},
    ),
    "not parallel": (Sampling(parallel_tool_calls=False), {"parallel_tool_calls": False}),
    "effort": (Sampling(reasoning_effort="low"), {"reasoning_effort": "low"}),
}


@pytest.mark.parametrize(("sampling", "sent"), CHOICES.values(), ids=CHOICES.keys())
def test_tools_and_how_to_use_them_are_sent(
    server: Server, sampling: Sampling, sent: dict[str, Any]
) -> None:
    ask(model(server), sampling=sampling, tools=(TOOL,))
    function = {
        "name": "shop_find",
        "description": "Find a thing.",
        "parameters": {"type": "object", "properties": {}},
    }
    base = {
        "model": "small",
        "messages": [{"role": "user", "content": "?"}],
        "temperature": 1.0,
        "seed": 5,
        "tools": [{"type": "function", "function": function}],
    }
    assert server.requests == [base | sent]


def test_a_limit_is_sent_only_where_one_is_set(server: Server) -> None:
    ask(model(server), sampling=Sampling())
    ask(model(server), sampling=Sampling(max_tokens=9))
    assert [request.get("max_tokens") for request in server.requests] == [None, 9]


def test_a_call_has_the_tools_own_name_and_its_arguments(server: Server) -> None:
    server.answers = [responds(200, answers_with(function("shop_find", '{"a": [1]}')))]
    (call,) = ask(model(server), tools=(TOOL,)).tool_calls
    assert (call.name, call.arguments, call.id) == ("shop.find", {"a": [1]}, "c1")


@pytest.mark.parametrize("arguments", ["", "{}"])
def test_a_call_without_arguments_has_none(server: Server, arguments: str) -> None:
    server.answers = [responds(200, answers_with(function("shop_find", arguments)))]
    (call,) = ask(model(server), tools=(TOOL,)).tool_calls
    assert call.arguments == {}


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "7", '{"a": NaN}'])
def test_arguments_that_are_no_object_are_kept_and_go_back_as_they_came(
    server: Server, arguments: str
) -> None:
    server.answers = [responds(200, answers_with(function("shop_find", arguments)))]
    remote = model(server)
    reply = ask(remote, tools=(TOOL,))
    assert reply.tool_calls[0].arguments == {"": arguments}
    ask(remote, user("?"), reply.message, tool_result("no", id="c1"), tools=(TOOL,))
    (call,) = server.requests[-1]["messages"][1]["tool_calls"]
    assert call == function("shop_find", arguments)


@pytest.mark.parametrize("call", [{"function": {}}, {"id": 3}, {}, function("", "{}")], ids=str)
def test_calls_that_are_none_are_an_error(server: Server, call: dict[str, Any]) -> None:
    server.answers = [responds(200, answers_with(call))]
    with pytest.raises(InfrastructureFault, match="usable choice"):
        ask(model(server), tools=(TOOL,))


def test_what_results_show_follows_when_all_calls_are_answered(server: Server) -> None:
    calls = [ToolCall("shop.find", {}, "a"), ToolCall("shop.find", {}, "b")]
    ask(
        model(server),
        user("?"),
        assistant("", tool_calls=calls),
        tool_result("one", id="a", images=(PNG,)),
        tool_result("two", id="b"),
        tools=(TOOL,),
    )
    sent = server.requests[0]["messages"][2:]
    assert [message["role"] for message in sent] == ["tool", "tool", "user"]
    assert sent[2]["content"][0]["type"] == "image_url"


def test_a_refusal_is_what_the_model_says(server: Server) -> None:
    message = {"role": "assistant", "content": None, "refusal": "I will not."}
    server.answers = [responds(200, {"choices": [{"message": message, "finish_reason": "stop"}]})]
    assert ask(model(server)).text == "I will not."


# ── streams ──────────────────────────────────────────────────────────────────


def test_a_stream_that_breaks_off_is_asked_for_again(server: Server) -> None:
    server.answers = [
        streams(recorded.VLLM_STREAM, cut=4),
        responds(503, "busy", **SOON),
        streams(recorded.VLLM_STREAM),
    ]
    remote = model(server, stream=True)
    assert ask(remote).text == "I will look."
    assert len(server.requests) == 3
    assert remote.traffic.under_way == 0 and remote.traffic.good == 1


def test_a_stream_that_always_breaks_off_is_an_error(server: Server) -> None:
    server.answers = [streams(recorded.VLLM_STREAM, cut=4)]
    with pytest.raises(InfrastructureFault, match=r"could not be reached.* 2 times"):
        ask(model(server, stream=True, attempts=2))
    assert len(server.requests) == 2


def test_an_error_within_a_stream_is_reported(server: Server) -> None:
    server.answers = [streams([*recorded.VLLM_STREAM[:3], {"error": {"message": "engine died"}}])]
    with pytest.raises(InfrastructureFault, match=r"broke off its answer .*engine died") as caught:
        ask(model(server, stream=True, attempts=1))
    assert caught.value.kind == "server"


def test_a_stream_cut_by_the_limit_reports_it(server: Server) -> None:
    events = [*recorded.VLLM_STREAM[:5]]
    events[-1] = events[-1] | {"choices": [events[-1]["choices"][0] | {"finish_reason": "length"}]}
    server.answers = [streams([*events, recorded.VLLM_STREAM[-1]])]
    reply = ask(model(server, stream=True))
    assert (reply.text, reply.finish) == ("I will", Finish.LENGTH)
    assert reply.prompt_tokens == 211
