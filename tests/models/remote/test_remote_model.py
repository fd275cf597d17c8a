"""Remote models against a real server on this machine, good and bad."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from palaestra.core.errors import ContextTooLong, InfrastructureFault, RequestRefused
from palaestra.core.message import Image, system, tool_result, user
from palaestra.core.model import Finish, Sampling
from palaestra.models.remote.remote_model import RemoteModel
from tests.models.remote.provider_server import GOOD, SOON, Server, ask, drops, responds, serving

PNG = Image.of(b"\x89PNG\r\n\x1a\n\x00")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def model(server: Server, **options: Any) -> RemoteModel:
    return RemoteModel("small", server.url, **{"attempts": 3, "timeout": 5.0} | options)


def test_a_reply_comes_with_its_words_finish_and_cost(server: Server) -> None:
    reply = ask(model(server))
    assert (reply.text, reply.finish, reply.prompt_tokens) == ("go left", Finish.STOP, 17)
    assert reply.tokens == ()
    assert reply.policy == f"openai:small@{server.url}"


def test_the_request_says_what_the_prompt_says(server: Server) -> None:
    conversation = (system("Act."), user("a key"), tool_result("12 files"))
    ask(model(server), *conversation, sampling=Sampling(temperature=0.3, max_tokens=9))
    assert server.paths == ["/v1/chat/completions"]
    assert server.requests == [
        {
            "model": "small",
            "messages": [
                {"role": "system", "content": "Act."},
                {"role": "user", "content": "a key"},
                {"role": "user", "content": "12 files"},
            ],
            "temperature": 0.3,
            "max_tokens": 9,
            "seed": 5,
        }
    ]


def test_images_are_sent_as_the_protocol_wants_them(server: Server) -> None:
    ask(model(server), system("Look."), user("What is it?", PNG))
    assert server.requests[-1]["messages"][1]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG.base64}"}},
    ]


def test_log_probabilities_are_recorded_where_they_are_asked_for_and_given(server: Server) -> None:
    assert ask(model(server, logprobs=True)).logprobs == (-0.5, -0.25)
    assert server.requests[0]["logprobs"] is True


def test_a_reply_cut_by_the_limit_reports_it(server: Server) -> None:
    server.answers = [
        responds(200, {"choices": [{"message": {"content": None}, "finish_reason": "length"}]})
    ]
    reply = ask(model(server))
    assert (reply.text, reply.finish, reply.logprobs) == ("", Finish.LENGTH, ())


def test_one_model_serves_several_event_loops(server: Server) -> None:
    shared = model(server)
    assert ask(shared).text == ask(shared).text == "go left"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server: Server, status: int) -> None:
    server.answers = [
        responds(status, "busy", **SOON),
        responds(status, "busy", **SOON),
        responds(200, GOOD),
    ]
    assert ask(model(server)).text == "go left"
    assert len(server.requests) == 3


def test_the_pause_that_a_server_asks_for_is_kept(server: Server) -> None:
    server.answers = [responds(429, "slow down", Retry_After="1"), responds(200, GOOD)]
    assert ask(model(server)).text == "go left"
    assert server.times[1] - server.times[0] >= 1.0


def test_a_pause_in_milliseconds_goes_before_one_in_whole_seconds(server: Server) -> None:
    short = responds(429, "slow down", retry_after_ms="300", Retry_After="3600")
    server.answers = [short, responds(200, GOOD)]
    assert ask(model(server)).text == "go left"
    assert 0.3 <= server.times[1] - server.times[0] < 60.0


def test_what_is_no_number_of_milliseconds_leaves_the_pause_in_seconds(server: Server) -> None:
    server.answers = [responds(429, "slow down", retry_after_ms="soon", Retry_After="3600")]
    with pytest.raises(InfrastructureFault, match="pause of 3600 s"):
        ask(model(server))


def test_a_pause_may_be_given_as_a_date(server: Server) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    server.answers = [responds(503, "maintenance", Retry_After=until)]
    with pytest.raises(InfrastructureFault, match=r"pause of 7\d\d\d s"):
        ask(model(server))


def test_a_pause_beyond_all_patience_is_not_waited_for(server: Server) -> None:
    server.answers = [responds(429, "quota", Retry_After="3600")]
    with pytest.raises(InfrastructureFault, match="pause of 3600 s"):
        ask(model(server))
    assert len(server.requests) == 1


def test_a_server_that_always_fails_is_given_up_after_a_few_attempts(server: Server) -> None:
    server.answers = [responds(500, {"error": {"message": "out of memory"}}, **SOON)]
    with pytest.raises(InfrastructureFault, match=r"500.*out of memory.*3 times") as caught:
        ask(model(server))
    assert caught.value.kind == "server"
    assert len(server.requests) == 3


def test_a_server_that_hangs_is_given_up_in_time(server: Server) -> None:
    server.answers = [server.hangs]
    with pytest.raises(InfrastructureFault, match=r"did not answer within 0\.3 s") as caught:
        ask(model(server, attempts=2, timeout=0.3))
    assert caught.value.kind == "timeout"
    assert len(server.requests) == 2


def test_a_connection_dropped_in_mid_answer_is_tried_again(server: Server) -> None:
    server.answers = [drops, responds(200, GOOD)]
    assert ask(model(server)).text == "go left"


def test_a_server_that_always_drops_the_connection_is_an_error(server: Server) -> None:
    server.answers = [drops]
    with pytest.raises(InfrastructureFault, match="could not be reached"):
        ask(model(server))


def test_no_server_at_all_is_an_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(InfrastructureFault, match="could not be reached") as caught:
            ask(RemoteModel("small", url, attempts=2))
    assert caught.value.kind == "connection"


RUBBISH = {
    "a page": "<html>Welcome</html>",
    "no choices": {"choices": []},
    "an error": {"error": "none"},
    "a list": [],
    "a number": "3",
    "no message": {"choices": [{"text": "go left"}]},
    "content that is no text": {"choices": [{"message": {"content": ["go"]}}]},
    "log-probabilities that are no numbers": {
        "choices": [{"message": {"content": "go"}, "logprobs": {"content": [{"logprob": "x"}]}}]
    },
}


@pytest.mark.parametrize("body", RUBBISH.values(), ids=RUBBISH.keys())
def test_rubbish_is_an_error_that_shows_it(server: Server, body: Any) -> None:
    server.answers = [responds(200, body)]
    with pytest.raises(InfrastructureFault, match=r"openai:small@.*answered .*\(") as caught:
        ask(model(server))
    assert caught.value.kind == "answer"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "context_length_exceeded", "message": "too many tokens"}},
        {"message": "This model's maximum context length is 4096 tokens."},
        {"error": {"type": "exceed_context_size_error", "message": "request exceeds it"}},
    ],
    ids=["openai", "vllm", "llama.cpp"],
)
def test_a_conversation_that_does_not_fit_is_no_error_of_the_server(
    server: Server, body: Any
) -> None:
    server.answers = [responds(400, body)]
    with pytest.raises(ContextTooLong):
        ask(model(server))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(400, "accepts such requests"), (401, "API key"), (403, "API key"), (404, "model's name")],
)
def test_a_refusal_is_final_and_states_what_to_check(
    server: Server, status: int, remedy: str
) -> None:
    server.answers = [responds(status, "no")]
    with pytest.raises(InfrastructureFault, match=remedy):
        ask(model(server))
    assert len(server.requests) == 1


def test_a_server_that_has_answered_others_refuses_a_request_for_what_it_is(server: Server) -> None:
    server.answers = [responds(200, GOOD), responds(422, "no"), responds(401, "no")]
    remote = model(server)
    assert ask(remote).text == "go left"
    with pytest.raises(RequestRefused):
        ask(remote)
    with pytest.raises(InfrastructureFault, match="API key") as refused:
        ask(remote)
    assert not isinstance(refused.value, RequestRefused)
