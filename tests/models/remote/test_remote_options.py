"""Options in a remote model's name."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from palaestra.core.errors import InfrastructureFault, InputError, UnknownName
from palaestra.core.message import user
from palaestra.core.model import Prompt, Sampling
from palaestra.models.registry import check_model
from palaestra.models.remote.remote_names import parse_remote
from tests.models.crowded import Crowded, crowded
from tests.models.remote.provider_server import Server, ask
from tests.models.remote.test_remote_model import server

__all__ = ["server"]  # the fixture

URL = "http://127.0.0.1:1/v1"


def test_options_stand_between_url_and_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "k-123")
    remote = parse_remote(f"openai:small@{server.url}?concurrency=8&rpm=60&tpm=1000#SOME_KEY")
    assert ask(remote).text == "go left"
    assert remote.traffic.limit == 8
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["authorization"] == "Bearer k-123"


def test_options_are_no_part_of_the_policy_that_speaks(server: Server) -> None:
    assert ask(parse_remote(f"openai:small@{server.url}?rpm=60")).policy == (
        f"openai:small@{server.url}"
    )


def test_concurrency_is_what_the_sessions_share() -> None:
    async def run() -> Crowded:
        async with crowded(100) as server:
            models = [parse_remote(f"openai:a@{server.url}?concurrency=2") for _ in range(3)]
            await asyncio.gather(
                *(
                    models[seed % 3].generate(Prompt((user("?"),), None, Sampling(), seed))
                    for seed in range(30)
                )
            )
            for model in models:
                await model.close()
            return server

    assert asyncio.run(run()).peak == 2


def test_answers_are_kept_in_the_file_of_that_name(server: Server, tmp_path: Path) -> None:
    name = f"openai:small@{server.url}?cache={tmp_path}/answers.db"
    assert ask(parse_remote(name)).text == ask(parse_remote(name)).text == "go left"
    assert len(server.requests) == 1


def test_nothing_is_kept_unless_a_file_is_named(server: Server) -> None:
    remote = parse_remote(f"openai:small@{server.url}")
    ask(remote)
    ask(remote)
    assert len(server.requests) == 2


def test_patience_is_what_was_asked_for(server: Server) -> None:
    server.answers = [server.hangs]
    started = time.monotonic()
    with pytest.raises(InfrastructureFault, match=r"within 0\.2 s, 1 times"):
        ask(parse_remote(f"openai:small@{server.url}?timeout=0.2&attempts=1"))
    assert time.monotonic() - started < 5.0


def test_log_probabilities_are_asked_for_by_name(server: Server) -> None:
    assert ask(parse_remote(f"openai:small@{server.url}?logprobs=on")).logprobs == (-0.5, -0.25)


@pytest.mark.parametrize(
    ("options", "hint"),
    [("concurency=8", "'concurrency'"), ("RPM=8", "Known: "), ("", "Known: ")],
)
def test_an_unknown_option_is_an_error_with_the_nearest_name(options: str, hint: str) -> None:
    with pytest.raises(UnknownName, match=hint):
        check_model(f"openai:small@{URL}?{options}")


@pytest.mark.parametrize(
    "options",
    [
        "concurrency=0",
        "concurrency=-1",
        "concurrency=many",
        "rpm=1.5",
        "rpm",
        "tpm=²",
        "timeout=0",
        "timeout=inf",
        "attempts=",
        "cache=",
        "logprobs=off",
        "stream=yes",
    ],
)
def test_a_value_that_cannot_be_is_an_error(options: str) -> None:
    with pytest.raises(InputError, match="is invalid; give "):
        check_model(f"anthropic:small@{URL}?{options}")


def test_an_option_given_twice_is_an_error() -> None:
    with pytest.raises(InputError, match="'rpm' twice"):
        check_model(f"openai:small@{URL}?rpm=1&rpm=2")


def test_a_cache_that_cannot_be_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        check_model(f"openai:small@{URL}?cache={tmp_path}/none/answers.db")
    assert list(tmp_path.iterdir()) == []
