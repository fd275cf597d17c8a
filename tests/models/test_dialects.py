"""Dialects: what is sent to servers of either protocol, and what their answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from palaestra.core.errors import ContextTooLong, InfrastructureFault, InputError
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Finish, Sampling
from palaestra.models.dialects import ANTHROPIC
from palaestra.models.remote import RemoteModel, parse_remote
from tests.models.test_remote import GOOD, HASTY, Server, ask, model, says, server

__all__ = ["server"]  # the fixture

SAID: dict[str, Any] = {
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
    return RemoteModel("claude", server.url, dialect=ANTHROPIC, patience=HASTY, **options)


def test_openai_tokens_that_the_server_held_were_not_computed(server: Server) -> None:
    usage = {
        "prompt_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens": 3,
    }
    server.answers = [says(200, GOOD | {"usage": usage})]
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
def test_a_usage_that_is_nonsense_is_a_fault(server: Server, usage: Any) -> None:
    server.answers = [says(200, GOOD | {"usage": usage})]
    with pytest.raises(InfrastructureFault, match="usable choice"):
        ask(model(server))


def test_log_probabilities_that_are_not_finite_are_a_fault(server: Server) -> None:
    said = (
        '{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"logprob": NaN}]}}]}'
    )
    server.answers = [says(200, said)]
    with pytest.raises(InfrastructureFault, match="usable choice"):
        ask(model(server))


def test_an_answer_that_nests_without_end_is_a_fault(server: Server) -> None:
    server.answers = [says(200, "[" * 200_000)]
    with pytest.raises(InfrastructureFault, match="not JSON"):
        ask(model(server))


def test_an_account_without_credit_is_not_asked_again(server: Server) -> None:
    server.answers = [says(429, {"error": {"code": "insufficient_quota"}})]
    with pytest.raises(InfrastructureFault, match="credit"):
        ask(model(server))
    assert len(server.requests) == 1


# ── the messages protocol ────────────────────────────────────────────────────


def test_a_reply_of_the_messages_protocol_is_its_texts_and_its_cost(server: Server) -> None:
    server.answers = [says(200, SAID)]
    remote = claude(server)
    reply = ask(remote)
    assert (reply.text, reply.finish) == ("go left", Finish.STOP)
    assert (reply.prompt_tokens, reply.computed_tokens) == (125, 25)
    assert reply.policy == f"anthropic:claude@{server.url}"
    assert remote.traffic.sampled_tokens == 7


def test_the_system_prompt_has_a_place_of_its_own_and_turns_alternate(server: Server) -> None:
    server.answers = [says(200, SAID)]
    conversation = (
        system("Act."),
        user("a key"),
        assistant("take it"),
        Message("tool", "taken"),
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


def test_the_key_of_the_messages_protocol_goes_into_its_own_header(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "k-123")
    server.answers = [says(200, SAID)]
    ask(parse_remote(f"anthropic:claude@{server.url}#SOME_KEY"))
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["x-api-key"] == "k-123" and "authorization" not in headers
    assert headers["anthropic-version"]


def test_a_cut_reply_of_the_messages_protocol_says_so(server: Server) -> None:
    server.answers = [says(200, SAID | {"stop_reason": "max_tokens"})]
    assert ask(claude(server)).finish is Finish.LENGTH


def test_an_overloaded_server_of_the_messages_protocol_is_asked_again(server: Server) -> None:
    server.answers = [says(529, {"error": {"type": "overloaded_error"}}), says(200, SAID)]
    remote = claude(server)
    assert ask(remote).text == "go left"
    assert remote.traffic.cuts == 1


def test_a_prompt_that_is_too_long_for_the_messages_protocol(server: Server) -> None:
    said = {"error": {"message": "prompt is too long: 250000 tokens > 200000 maximum"}}
    server.answers = [says(400, said)]
    with pytest.raises(ContextTooLong):
        ask(claude(server))


@pytest.mark.parametrize(
    "body",
    [
        {},
        GOOD,
        {"content": "go"},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "text", "text": 3}]},
        {"content": None},
        SAID | {"usage": {"input_tokens": "x"}},
    ],
    ids=str,
)
def test_rubbish_in_the_messages_protocol_is_a_fault(server: Server, body: Any) -> None:
    server.answers = [says(200, body)]
    with pytest.raises(InfrastructureFault, match="messages protocol"):
        ask(claude(server))


def test_the_messages_protocol_knows_no_log_probabilities(server: Server) -> None:
    with pytest.raises(InputError, match="logprobs"):
        parse_remote(f"anthropic:claude@{server.url}?logprobs=on")
