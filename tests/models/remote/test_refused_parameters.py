"""Refused parameters are learned from errors, omitted, and logged once."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.errors import InfrastructureFault
from palaestra.core.message import assistant, user
from palaestra.core.model import Prompt, Sampling
from palaestra.core.tool import Tool
from palaestra.models.remote.anthropic_protocol import ANTHROPIC
from palaestra.models.remote.openai_protocol import OPENAI
from palaestra.models.remote.remote_model import RemoteModel
from palaestra.models.remote.response_cache import ResponseCache
from tests.models import recorded
from tests.models.remote.provider_server import GOOD, Answer, Server, ask, responds
from tests.models.remote.test_remote_model import model, server

__all__ = ["server"]  # the fixture

TOOL = Tool("go", "Walk.", {"type": "object", "properties": {}})


def gpt(message: str, param: str | None, code: str | None = "unsupported_parameter") -> Answer:
    kind = "invalid_request_error"
    return responds(
        400, {"error": {"message": message, "type": kind, "param": param, "code": code}}
    )


def claude(message: str) -> Answer:
    kind = "invalid_request_error"
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_01"}
    return responds(400, body)


TEMPERATURE = gpt(
    "Unsupported value: 'temperature' does not support 0.3 with this model. "
    "Only the default (1) value is supported.",
    "temperature",
    "unsupported_value",
)
OLD_LIMIT = gpt(
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    "max_tokens",
)
NEW_LIMIT = gpt("Unrecognized request argument supplied: max_completion_tokens", None, None)
EXTRA = responds(
    422,
    {
        "object": "error",
        "message": {
            "detail": [
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "seed"],
                    "msg": "Extra inputs are not permitted",
                }
            ]
        },
    },
)
REFUSALS: dict[str, tuple[Answer, str]] = {
    "temperature": (TEMPERATURE, "temperature"),
    "seed, at Mistral": (EXTRA, "seed"),
    "seed, at Gemini": (responds(400, 'Unknown name "seed": Cannot find field.'), "seed"),
    "stop": (gpt("Unsupported parameter: 'stop' is not supported.", "stop"), "stop"),
    "parallel calls": (
        gpt(
            "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
            "parallel_tool_calls",
        ),
        "parallel_tool_calls",
    ),
    "effort": (
        gpt("Unrecognized request argument supplied: reasoning_effort", None, None),
        "reasoning_effort",
    ),
}
FULL = Sampling(
    temperature=0.3,
    max_tokens=9,
    stop=("END",),
    parallel_tool_calls=False,
    reasoning_effort="low",
)


@pytest.mark.parametrize(("refusal", "parameter"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_is_refused_is_left_out_from_then_on_and_reported_once(
    server: Server, caplog: pytest.LogCaptureFixture, refusal: Answer, parameter: str
) -> None:
    server.answers = [refusal, responds(200, GOOD)]
    remote = model(server)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert ask(remote, sampling=FULL, tools=(TOOL,)).text == "go left"
        ask(model(server), sampling=FULL, tools=(TOOL,))  # others of that name omit it too
    first, *later = server.requests
    assert len(later) == 3 and parameter in first
    rest = {name: value for name, value in first.items() if name != parameter}
    assert later == [rest] * 3
    (output,) = caplog.messages
    assert remote.name in output and f"'{parameter}'" in output


def test_the_limit_is_sent_under_the_name_that_the_server_takes(server: Server) -> None:
    server.answers = [OLD_LIMIT, responds(200, GOOD)]
    ask(model(server), sampling=FULL)
    one, other = server.requests
    assert (one["max_tokens"], other["max_completion_tokens"]) == (9, 9)
    assert "max_completion_tokens" not in one and "max_tokens" not in other


def test_openai_itself_gets_the_new_name_first(server: Server) -> None:
    server.answers = [NEW_LIMIT, responds(200, GOOD)]
    ask(model(server, protocol=OPENAI), sampling=FULL)
    one, other = server.requests
    assert (one["max_completion_tokens"], other["max_tokens"]) == (9, 9)


def test_several_refusals_are_learned_one_after_the_other(server: Server) -> None:
    server.answers = [OLD_LIMIT, TEMPERATURE, EXTRA, responds(200, GOOD)]
    assert ask(model(server), sampling=FULL).text == "go left"
    assert set(server.requests[-1]) == {
        "model", "messages", "max_completion_tokens", "stop", "reasoning_effort",
    }  # fmt: skip


def test_all_who_asked_before_it_was_known_ask_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def picky(handler: Any) -> None:
        (TEMPERATURE if "temperature" in handler.body else responds(200, GOOD))(handler)

    server.answers = [picky]
    remote = model(server)

    async def run() -> list[str]:
        prompts = [Prompt((user("?"),), None, FULL, seed) for seed in range(8)]
        replies = await asyncio.gather(*map(remote.generate, prompts))
        await remote.close()
        return [reply.text for reply in replies]

    assert asyncio.run(run()) == ["go left"] * 8
    assert len(caplog.messages) == 1


def test_stop_strings_that_are_refused_still_end_the_reply(server: Server) -> None:
    message = {"role": "assistant", "content": "go left\nEND\nand more"}
    good = responds(200, {"choices": [{"message": message, "finish_reason": "stop"}]})
    server.answers = [REFUSALS["stop"][0], good]
    assert ask(model(server), sampling=FULL).text == "go left\n"


def test_reasoning_that_a_server_does_not_take_back_is_left_out(server: Server) -> None:
    refusal = responds(400, {"error": {"message": "Extra inputs not permitted: reasoning_content"}})
    server.answers = [refusal, responds(200, GOOD)]
    thought = assistant("Left.", reasoning="Hm.", signature="reasoning_content")
    ask(model(server), user("?"), thought, user("And now?"))
    one, other = (request["messages"][1] for request in server.requests)
    assert one == {"role": "assistant", "content": "Left.", "reasoning_content": "Hm."}
    assert other == {"role": "assistant", "content": "Left."}


NOT_LEARNED = {
    "a value out of range": gpt(
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3.",
        "temperature",
        "decimal_above_max_value",
    ),
    "an effort that the model does not know": gpt(
        "Unsupported value: 'reasoning_effort' does not support 'low' with this model. "
        "Supported values are: 'medium', 'high'.",
        "reasoning_effort",
        "unsupported_value",
    ),
    "a parameter that was not sent": gpt(
        "Unsupported parameter: 'logit_bias' is not supported with this model.", "logit_bias"
    ),
    "a tool": gpt("Unsupported: tools are not supported by this model.", "tools"),
    "words that contain its name": responds(400, "unknown seeds"),
}


@pytest.mark.parametrize("refusal", NOT_LEARNED.values(), ids=NOT_LEARNED.keys())
def test_other_refusals_are_errors(server: Server, refusal: Answer) -> None:
    server.answers = [refusal, responds(200, GOOD)]
    with pytest.raises(InfrastructureFault, match="answered 400"):
        ask(model(server), sampling=FULL, tools=(TOOL,))
    assert len(server.requests) == 1


def test_a_parameter_refused_although_it_was_left_out_is_an_error(server: Server) -> None:
    server.answers = [TEMPERATURE]
    with pytest.raises(InfrastructureFault, match="answered 400"):
        ask(model(server), sampling=FULL)
    assert len(server.requests) == 2


def test_the_cache_knows_a_request_by_what_was_asked_for(server: Server, tmp_path: Path) -> None:
    server.answers = [TEMPERATURE, responds(200, GOOD)]
    for _ in range(2):
        remote = model(server, cache=ResponseCache(tmp_path / "answers.db"))
        assert ask(remote, sampling=FULL).text == "go left"
    assert len(server.requests) == 2
    ask(
        model(server, cache=ResponseCache(tmp_path / "answers.db")),
        sampling=Sampling(temperature=0.4, max_tokens=9, stop=("END",)),
    )
    assert len(server.requests) == 3


# ── the messages protocol ────────────────────────────────────────────────────


def asked(server: Server, *refusals: Answer, **sampling: Any) -> list[dict[str, Any]]:
    server.answers = [*refusals, responds(200, recorded.CLAUDE)]
    remote = RemoteModel("claude", server.url, protocol=ANTHROPIC, stream=False, attempts=1)
    ask(remote, sampling=Sampling(**sampling))
    return server.requests


@pytest.mark.parametrize(
    "message",
    [
        "temperature: Extra inputs are not permitted",
        "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
        "`temperature` is deprecated for this model.",
    ],
)
def test_a_temperature_that_claude_refuses_is_left_out(server: Server, message: str) -> None:
    first, then = asked(server, claude(message), temperature=0.3, max_tokens=99)
    assert first["temperature"] == 0.3 and "temperature" not in then


def test_thinking_falls_back_to_a_budget_and_then_to_none(server: Server) -> None:
    requests = asked(
        server,
        claude("adaptive thinking is not supported on this model"),
        claude("This model does not support the effort parameter."),
        claude("thinking: this model does not support thinking"),
        reasoning_effort="high",
        max_tokens=4096,
    )
    assert [request.get("thinking") for request in requests] == [
        {"type": "adaptive"},
        {"type": "enabled", "budget_tokens": 4095},
        {"type": "enabled", "budget_tokens": 4095},
        None,
    ]
    assert ["output_config" in request for request in requests] == [True, True, False, False]


def test_a_budget_that_leaves_no_room_is_not_sent(server: Server) -> None:
    _, then = asked(
        server,
        claude("adaptive thinking is not supported on this model"),
        reasoning_effort="low",
        max_tokens=500,
    )
    assert "thinking" not in then and then["output_config"] == {"effort": "low"}
