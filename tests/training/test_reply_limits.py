"""Default reply limits: an action's length here, a server's own limit for remote models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.evaluation.running.matrix import MatrixRequest, plan
from palaestra.evaluation.running.suite import Entry
from tests.models.remote.provider_server import Server, serving

WORLD, REMOTE = "probe/sea-4", "openai:m@http://127.0.0.1:1/v1"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def limit(agent: str, model: str, given: int | None = None, **roles: str) -> int | None:
    entry = Entry(environment=WORLD, split=Split.TEST, tasks=1, max_tokens=given)
    made, _ = plan(MatrixRequest([entry], [agent], [model], roles=roles))
    return made.cells[0].max_tokens


def test_a_model_here_replies_as_long_as_the_agent_needs() -> None:
    assert (limit("direct", "random"), limit("react", "random")) == (8, 128)


@pytest.mark.parametrize("agent", ["direct", "react"])
def test_a_remote_model_replies_as_long_as_its_server_allows(agent: str) -> None:
    assert limit(agent, REMOTE) is None
    assert limit(agent, REMOTE, 9000) == 9000  # beyond the context of a model here


def test_a_remote_model_in_another_role_is_not_cut_either() -> None:
    assert limit("verify", "random", verifier=REMOTE) is None


def test_a_limit_beyond_the_context_of_a_model_here_is_refused() -> None:
    with pytest.raises(InputError, match="9000 tokens do not fit"):
        limit("direct", "random", 9000)


def test_an_evaluation_sends_a_limit_only_where_one_is_set(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where its runs are written
    model = f"openai:m@{server.url}"
    pa.evaluate(WORLD, agent="direct", model=model, n=1, turns=1)
    pa.evaluate(WORLD, agent="direct", model=model, n=1, turns=1, max_tokens=77)
    assert [request.get("max_tokens") for request in server.requests] == [None, 77]
