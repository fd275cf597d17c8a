"""Remote models against a real server on this machine, good and bad."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from palaestra.core.errors import ContextTooLong, InfrastructureFault, InputError, RequestRefused
from palaestra.core.message import Message, system, user
from palaestra.core.model import Finish, Generation, Prompt, Sampling
from palaestra.models.dialects import ANTHROPIC
from palaestra.models.endpoint import Patience
from palaestra.models.remote import RemoteModel, parse_remote

HASTY = Patience(attempts=3, timeout=5.0, first_wait=0.01, longest_wait=2.0)
GOOD = {
    "choices": [
        {
            "message": {"role": "assistant", "content": "go left"},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "go", "logprob": -0.5}, {"logprob": -0.25}]},
        }
    ],
    "usage": {"prompt_tokens": 17},
}
Answer = Callable[[BaseHTTPRequestHandler], None]


def says(status: int, body: Any, **headers: str) -> Answer:
    data = (body if isinstance(body, str) else json.dumps(body)).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def drops(handler: BaseHTTPRequestHandler) -> None:
    """Promises a long answer and hangs up in its middle."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


class Server(ThreadingHTTPServer):
    """Gives the answers of a list, the last one for ever, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = [says(200, GOOD)]
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.paths: list[str] = []
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def hangs(self, handler: BaseHTTPRequestHandler) -> None:
        self.released.wait(60)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        server.requests.append(json.loads(body))
        server.headers.append(dict(self.headers))
        server.paths.append(self.path)
        server.times.append(time.monotonic())
        place = min(len(server.requests), len(server.answers)) - 1
        server.answers[place](self)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def model(server: Server, patience: Patience = HASTY, **options: Any) -> RemoteModel:
    return RemoteModel("small", server.url, patience=patience, **options)


def ask(model: RemoteModel, *messages: Message, sampling: Sampling = Sampling()) -> Generation:
    async def run() -> Generation:
        prompt = Prompt(messages or (user("?"),), None, sampling, seed=2**62 + 5)
        try:
            return await model.generate(prompt)
        finally:
            await model.close()

    return asyncio.run(run())


def test_a_reply_comes_with_its_words_finish_and_cost(server: Server) -> None:
    reply = ask(model(server))
    assert (reply.text, reply.finish, reply.prompt_tokens) == ("go left", Finish.STOP, 17)
    assert reply.tokens == ()
    assert reply.policy == f"openai:small@{server.url}"


def test_the_request_says_what_the_prompt_says(server: Server) -> None:
    conversation = (system("Act."), user("a key"), Message("tool", "12 files"))
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


def test_pictures_are_sent_as_each_protocol_wants_them(server: Server) -> None:
    seen = user("What is it?", "iVBORw0KGgoA")
    ask(model(server), system("Look."), seen)
    assert server.requests[-1]["messages"][1]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoA"}},
    ]
    server.answers = [says(200, {"content": [{"type": "text", "text": "a cat"}], "usage": {}})]
    assert ask(model(server, dialect=ANTHROPIC), system("Look."), seen).text == "a cat"
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoA"}
    assert server.requests[-1]["messages"][0]["content"] == [
        {"type": "image", "source": source},
        {"type": "text", "text": "What is it?"},
    ]


def test_log_probabilities_are_recorded_where_they_are_asked_for_and_given(server: Server) -> None:
    assert ask(model(server, logprobs=True)).logprobs == (-0.5, -0.25)
    assert server.requests[0]["logprobs"] is True


def test_a_reply_cut_by_the_limit_says_so(server: Server) -> None:
    server.answers = [
        says(200, {"choices": [{"message": {"content": None}, "finish_reason": "length"}]})
    ]
    reply = ask(model(server))
    assert (reply.text, reply.finish, reply.logprobs) == ("", Finish.LENGTH, ())


def test_one_model_serves_several_event_loops(server: Server) -> None:
    shared = model(server)
    assert ask(shared).text == ask(shared).text == "go left"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server: Server, status: int) -> None:
    server.answers = [says(status, "busy"), says(status, "busy"), says(200, GOOD)]
    assert ask(model(server)).text == "go left"
    assert len(server.requests) == 3


def test_the_pause_that_a_server_asks_for_is_kept(server: Server) -> None:
    server.answers = [says(429, "slow down", Retry_After="1"), says(200, GOOD)]
    assert ask(model(server)).text == "go left"
    assert server.times[1] - server.times[0] >= 1.0


def test_a_pause_in_milliseconds_goes_before_one_in_whole_seconds(server: Server) -> None:
    short = says(429, "slow down", retry_after_ms="300", Retry_After="3600")
    server.answers = [short, says(200, GOOD)]
    assert ask(model(server)).text == "go left"
    assert 0.3 <= server.times[1] - server.times[0] < 60.0


def test_what_is_no_number_of_milliseconds_leaves_the_pause_in_seconds(server: Server) -> None:
    server.answers = [says(429, "slow down", retry_after_ms="soon", Retry_After="3600")]
    with pytest.raises(InfrastructureFault, match="pause of 3600 s"):
        ask(model(server))


def test_a_pause_may_be_given_as_a_date(server: Server) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    server.answers = [says(503, "maintenance", Retry_After=until)]
    with pytest.raises(InfrastructureFault, match=r"pause of 7\d\d\d s"):
        ask(model(server))


def test_a_pause_beyond_all_patience_is_not_waited_for(server: Server) -> None:
    server.answers = [says(429, "quota", Retry_After="3600")]
    with pytest.raises(InfrastructureFault, match="pause of 3600 s"):
        ask(model(server))
    assert len(server.requests) == 1


def test_a_server_that_always_fails_is_given_up_after_a_few_attempts(server: Server) -> None:
    server.answers = [says(500, {"error": {"message": "out of memory"}})]
    with pytest.raises(InfrastructureFault, match=r"500.*out of memory.*3 times") as caught:
        ask(model(server))
    assert caught.value.kind == "server"
    assert len(server.requests) == 3


def test_a_server_that_hangs_is_given_up_in_time(server: Server) -> None:
    server.answers = [server.hangs]
    hasty = Patience(attempts=2, timeout=0.3, first_wait=0.01)
    with pytest.raises(InfrastructureFault, match=r"did not answer within 0\.3 s") as caught:
        ask(model(server, hasty))
    assert caught.value.kind == "timeout"
    assert len(server.requests) == 2


def test_a_connection_dropped_in_mid_answer_is_tried_again(server: Server) -> None:
    server.answers = [drops, says(200, GOOD)]
    assert ask(model(server)).text == "go left"


def test_a_server_that_always_drops_the_connection_is_a_fault(server: Server) -> None:
    server.answers = [drops]
    with pytest.raises(InfrastructureFault, match="could not be reached"):
        ask(model(server))


def test_no_server_at_all_is_a_fault() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(InfrastructureFault, match="could not be reached") as caught:
            ask(RemoteModel("small", url, patience=HASTY))
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
def test_rubbish_is_a_fault_that_shows_it(server: Server, body: Any) -> None:
    server.answers = [says(200, body)]
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
def test_a_conversation_that_does_not_fit_is_no_fault_of_the_server(
    server: Server, body: Any
) -> None:
    server.answers = [says(400, body)]
    with pytest.raises(ContextTooLong):
        ask(model(server))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(400, "accepts such requests"), (401, "API key"), (403, "API key"), (404, "model's name")],
)
def test_a_refusal_is_final_and_says_what_to_check(
    server: Server, status: int, remedy: str
) -> None:
    server.answers = [says(status, "no")]
    with pytest.raises(InfrastructureFault, match=remedy):
        ask(model(server))
    assert len(server.requests) == 1


def test_a_server_that_has_answered_others_refuses_a_request_for_what_it_is(server: Server) -> None:
    server.answers = [says(200, GOOD), says(422, "no"), says(401, "no")]
    remote = model(server)
    assert ask(remote).text == "go left"
    with pytest.raises(RequestRefused):
        ask(remote)
    with pytest.raises(InfrastructureFault, match="API key") as refused:
        ask(remote)
    assert not isinstance(refused.value, RequestRefused)


# ── names and keys ───────────────────────────────────────────────────────────


def test_a_name_holds_model_and_url(server: Server) -> None:
    parsed = parse_remote(f"openai:org/small@v2@{server.url}")
    assert ask(parsed).text == "go left"
    assert server.requests[0]["model"] == "org/small@v2"


def test_the_key_comes_from_the_variable_named_and_is_never_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "k-123")
    server.answers = [says(401, "no")]
    parsed = parse_remote(f"openai:small@{server.url}#SOME_KEY")
    with pytest.raises(InfrastructureFault) as caught:
        ask(parsed)
    assert server.headers[0]["Authorization"] == "Bearer k-123"
    assert "k-123" not in str(caught.value) + parsed.name


def test_no_key_is_sent_unless_one_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123")
    ask(parse_remote(f"openai:small@{server.url}"))
    assert "Authorization" not in server.headers[0]


def test_a_key_variable_that_is_not_set_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(InputError, match="'SOME_KEY'"):
        parse_remote("openai:small@http://localhost:1/v1#SOME_KEY")


@pytest.mark.parametrize(
    "name",
    [
        "openai:small",
        "openai:@http://localhost/v1",
        "openai:small@localhost:8000",
        "openai:small@ftp://localhost/v1",
        "openai:small@http://",
        "openai:small@http://localhost:port/v1",
        "openai:small@http://localhost/v1#not a name",
        "small@http://localhost/v1",
        "",
    ],
)
def test_a_malformed_name_is_an_input_error_with_an_example(name: str) -> None:
    with pytest.raises(InputError, match=r"write openai:MODEL@URL"):
        parse_remote(name)
