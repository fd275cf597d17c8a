"""A test server that answers like providers: from recorded bodies, streams included."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from palaestra.core.message import Message, user
from palaestra.core.model import Generation, Prompt, Sampling
from palaestra.core.tool import Tool
from palaestra.models.remote.remote_model import RemoteModel

GOOD: dict[str, Any] = {
    "choices": [
        {
            "message": {"role": "assistant", "content": "go left"},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "go", "logprob": -0.5}, {"logprob": -0.25}]},
        }
    ],
    "usage": {"prompt_tokens": 17},
}
SOON = {"retry_after_ms": "10"}  # a short pause that a busy server asks for
Answer = Callable[[BaseHTTPRequestHandler], None]


def responds(status: int, body: Any, *, kind: str = "application/json", **headers: str) -> Answer:
    """Answer with a body; anything but a text is sent as JSON."""
    data = (body if isinstance(body, str) else json.dumps(body)).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def streams(events: Sequence[Mapping[str, Any]], *, named: bool = False, cut: int = 0) -> Answer:
    """Answer with a stream of events.

    Args:
        events: each is sent as JSON.
        named: each is introduced by its type, as Anthropic does; else the stream ends with DONE.
        cut: hang up after so many events; 0 sends all of them.
    """

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for event in events[:cut] if cut else events:
            head = f"event: {event['type']}\n" if named else ""
            _chunk(handler, f"{head}data: {json.dumps(event)}\n\n")
        if cut:
            handler.close_connection = True
            return
        if not named:
            _chunk(handler, "data: [DONE]\n\n")
        _chunk(handler, "")

    return answer


def _chunk(handler: BaseHTTPRequestHandler, text: str) -> None:
    data = text.encode()
    handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def drops(handler: BaseHTTPRequestHandler) -> None:
    """Announce a long response and hang up in the middle."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


class Server(ThreadingHTTPServer):
    """A server that gives the answers of a list, repeats the last one, and records requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Answer] = [responds(200, GOOD)]
        self.models: dict[str, Any] = {}  # its entries of the models page
        self.asked_for: list[str] = []  # pages
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    body: dict[str, Any]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        self.body = json.loads(body)
        server.requests.append(self.body)
        server.headers.append({name.lower(): value for name, value in self.headers.items()})
        server.paths.append(self.path)
        server.times.append(time.monotonic())
        place = min(len(server.requests), len(server.answers)) - 1
        server.answers[place](self)

    def do_GET(self) -> None:
        self.server.asked_for.append(self.path)
        known = self.server.models.get(self.path.rpartition("/")[2])
        (responds(404, {"error": {"message": "none"}}) if known is None else responds(200, known))(
            self
        )

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server in a thread."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def ask(
    model: RemoteModel,
    *messages: Message,
    sampling: Sampling = Sampling(max_tokens=64),
    tools: tuple[Tool, ...] = (),
) -> Generation:
    """Generate one reply, in a separate event loop."""

    async def run() -> Generation:
        prompt = Prompt(messages or (user("?"),), None, sampling, seed=2**62 + 5, tools=tools)
        try:
            return await model.generate(prompt)
        finally:
            await model.close()

    return asyncio.run(run())
