"""Names of remote models: the provider, the server, and the key that it gets."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

from palaestra.core.errors import InfrastructureFault, InputError, MissingPackage
from palaestra.core.model import Sampling
from palaestra.models.registry import check_model
from palaestra.models.remote.remote_names import parse_remote
from tests.models import recorded
from tests.models.remote.provider_server import Server, ask, responds, streams
from tests.models.remote.test_remote_model import server

__all__ = ["server"]  # the fixture

VARIABLES = (
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_API_VERSION",
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL",
    "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_AD_TOKEN",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


# ── the provider's own ───────────────────────────────────────────────────────


def test_a_provider_and_a_model_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-2")
    for name in ("openai:gpt-5-mini", "openai:ft:gpt-4o:org::x1", "anthropic:claude-opus-4-5"):
        assert parse_remote(name).name == name
    assert parse_remote("openai:gpt-5-mini?rpm=60&concurrency=2").traffic.limit == 2


def test_openai_is_asked_at_its_own_address(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-1")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    remote = parse_remote("openai:small")
    assert ask(remote).text == "go left"
    assert server.headers[0]["authorization"] == "Bearer k-1"
    assert remote.name == f"openai:small@{server.url}"  # whom the record names is who answered


def test_anthropic_streams_from_its_own_address(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-2")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
    server.models = {"claude": {"id": "claude", "max_tokens": 32_000}}
    server.answers = [streams(recorded.CLAUDE_STREAM, named=True)]
    reply = ask(parse_remote("anthropic:claude"), sampling=Sampling())
    assert reply.text == "I'll check both cities."
    assert server.paths == ["/v1/messages"]
    assert server.requests[0]["stream"] is True and server.requests[0]["max_tokens"] == 32_000
    assert "k-2" in str(server.headers[0])


def test_azure_is_asked_for_its_deployment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'AZURE_OPENAI_API_KEY'"):
        parse_remote("azure:mine")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k-3")
    with pytest.raises(InputError, match="'AZURE_OPENAI_ENDPOINT'"):
        parse_remote("azure:mine")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url.removesuffix("/v1"))
    with pytest.raises(InputError, match="'OPENAI_API_VERSION'"):
        parse_remote("azure:mine")
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    assert ask(parse_remote("azure:mine")).text == "go left"
    path = "/openai/deployments/mine/chat/completions?api-version=2024-10-21"
    assert server.paths == [path]
    assert server.headers[0]["api-key"] == "k-3"
    assert server.requests[0]["max_completion_tokens"] == 64


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("anthropic:claude-opus-4-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-5-mini#MY_KEY", "MY_KEY"),
    ],
)
def test_a_missing_key_is_named(name: str, variable: str) -> None:
    with pytest.raises(InputError, match=f"'{variable}'.*export {variable}="):
        check_model(name)


def test_a_refused_key_names_its_variable(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-1")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    server.answers = [responds(401, {"error": {"message": "Incorrect API key provided."}})]
    with pytest.raises(InfrastructureFault, match="environment variable OPENAI_API_KEY"):
        ask(parse_remote("openai:small"))


@pytest.mark.parametrize(
    ("name", "package"), [("openai:a@http://x/v1", "openai"), ("anthropic:a@http://x", "anthropic")]
)
def test_without_the_sdk_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    found = importlib.util.find_spec

    def missing(wanted: str, *more: Any) -> Any:
        return None if wanted == package else found(wanted, *more)

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    with pytest.raises(MissingPackage, match=rf"'{package}'.*palaestra\[remote\]"):
        check_model(name)


def test_names_are_judged_without_importing_an_sdk() -> None:
    code = (
        "import sys; from palaestra.models.registry import check_model; "
        "check_model('openai:a@http://x/v1'); check_model('anthropic:a@http://x/v1'); "
        "print({'openai', 'anthropic', 'httpx2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ── any server ───────────────────────────────────────────────────────────────


def test_a_name_holds_model_and_url(server: Server) -> None:
    parsed = parse_remote(f"openai:org/small@v2@{server.url}")
    assert ask(parsed).text == "go left"
    assert server.requests[0]["model"] == "org/small@v2"


def test_the_key_comes_from_the_variable_named_and_is_never_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "k-123")
    server.answers = [responds(401, "no")]
    parsed = parse_remote(f"openai:small@{server.url}#SOME_KEY")
    with pytest.raises(InfrastructureFault) as caught:
        ask(parsed)
    assert server.headers[0]["authorization"] == "Bearer k-123"
    assert "k-123" not in str(caught.value) + parsed.name


def test_no_key_is_sent_unless_one_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-123")
    ask(parse_remote(f"openai:small@{server.url}"))
    assert "123" not in str(server.headers[0])


def test_a_key_variable_that_is_not_set_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(InputError, match="'SOME_KEY'"):
        parse_remote("openai:small@http://localhost:1/v1#SOME_KEY")


@pytest.mark.parametrize(
    "name",
    [
        "openai:",
        "openai:small@",
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
    with pytest.raises(InputError, match=r"openai:MODEL@URL for any server"):
        parse_remote(name)
