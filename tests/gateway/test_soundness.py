"""Errors caused by a program's request are reported to it, and never excuse its episode."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.main import main
from palaestra.core.errors import RequestRefused
from palaestra.core.outcome import Status
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer
from tests.gateway.test_refusals import ENDPOINTS, START, Broken, reason, scripted
from tests.gateway.visits import visit

RAW, SPELT = b"\xed\xa0\x80", b"\\ud800"  # half a character, as bytes and as an escape


def spoilt(body: Any, half: bytes) -> bytes:
    """Return the body with half a character in a string."""
    for words in (b'"start"', b'"up"', b'""'):
        data = json.dumps(body).encode()
        if words in data:
            return data.replace(words, b'"' + half + b'"')
    raise AssertionError(body)


@pytest.mark.parametrize("half", [RAW, SPELT], ids=["bytes", "escape"])
def test_half_a_character_is_not_text_and_is_reported_to_the_program(half: bytes) -> None:
    async def run() -> None:
        async with visit(scripted()) as visited:
            for path, body in ENDPOINTS.items():
                answer = await visited.client.post(path, content=spoilt(body, half))
                assert answer.status_code == 400, (path, answer.text)
                assert "JSON" in reason(path, answer)
            assert not visited.session.graph.calls and not visited.session.steps
            whole = spoilt(ENDPOINTS["/v1/chat/completions"], b"\\ud83d\\ude00")
            answer = await visited.client.post("/v1/chat/completions", content=whole)
            assert answer.status_code == 200
            assert visited.session.graph.calls[0].messages[0].text == "\U0001f600"
            assert (await visited.end()).outcome.status is Status.FAILURE

    asyncio.run(run())


PROGRAM = r"""
import os, urllib.error, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
body = b'{"model": "m", "messages": [{"role": "user", "content": "\xed\xa0\x80"}]}'
auth = {"Authorization": "Bearer " + os.environ["PALAESTRA_TOKEN"]}
try:
    urllib.request.urlopen(urllib.request.Request(url, body, auth))
except urllib.error.HTTPError as error:
    os._exit(0 if error.code == 400 else 1)
"""


def test_a_program_cannot_excuse_its_episodes_by_what_it_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    asked = ["eval", "--env", "probe/umbrella-4", "--model", "random", "-n", "2", "--workers", "0"]
    assert main([*asked, "--agent-command", f"{sys.executable} {program}", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["scored"], result["outcomes"]) == (2, {"failure": 2})


def test_names_and_arguments_of_tools_that_are_none_are_errors_of_the_call() -> None:
    async def run() -> None:
        async with visit(scripted()) as visited:
            names: list[Any] = [{}, ["act"], 1, None, True]
            for name in names:
                answer = await visited.rpc("tools/call", name=name, arguments={})
                assert answer.status_code == 200
                assert answer.json()["error"]["code"] == -32602
            for arguments in ([], "", 0, False, [["action", "up"]]):
                answer = await visited.rpc("tools/call", name="act", arguments=arguments)
                assert answer.json()["error"]["code"] == -32602
            assert not visited.session.steps

    asyncio.run(run())


def test_too_deep_nesting_is_refused() -> None:
    nested = "[" * 400 + "]" * 400
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": nested}}
    tool = {"name": "f", "parameters": {"a": json.loads(nested)}}

    async def run() -> None:
        async with visit(scripted()) as visited:
            deep = await visited.chat(START, tools=[{"type": "function", "function": tool}])
            assert deep.status_code == 400 and "nested" in deep.text
            output = {"role": "assistant", "content": None, "tool_calls": [call]}
            words = await visited.chat([*START, output, *START])
            assert words.status_code == 200  # of these arguments only the text is taken
            acted = {"call": {"name": "f", "arguments": {"a": json.loads(nested)}}}
            assert (await visited.post("/world/step", acted)).status_code == 400

    asyncio.run(run())


@pytest.mark.parametrize("value", ["NaN", "1e999", '"\\ud800"', "[" * 400 + "]" * 400])
def test_a_call_of_the_model_that_no_json_can_carry_stays_among_its_words(value: str) -> None:
    call = f'<tool_call>\n{{"name": "act", "arguments": {{"action": {value}}}}}\n</tool_call>'
    chat = {"type": "function", "function": {"name": "act"}}
    blocks: Any = {"model": "m", "max_tokens": 900, "messages": START}

    async def run() -> None:
        model = ScriptedModel([call] * 9, renderer=renderer())
        async with visit(model) as visited:
            output = (await visited.chat(START, tools=[chat])).raise_for_status().json()
            assert output["choices"][0]["message"].get("tool_calls") is None
            blocks["tools"] = [{"name": "act", "input_schema": {"type": "object"}}]
            answer = await visited.post("/anthropic/v1/messages", blocks)
            (block,) = answer.raise_for_status().json()["content"]
            assert block["type"] == "text"

    asyncio.run(run())


def test_a_request_that_the_models_server_refuses_is_the_programs_to_fix() -> None:
    async def run() -> None:
        refused = RequestRefused("refused", "the server answered 400: too many stop strings")
        async with visit(Broken(refused)) as visited:
            answer = await visited.chat(START, stop=["a"] * 20)
            assert answer.status_code == 400 and "stop strings" in answer.text
            assert not visited.endpoint.ended.is_set()
            assert (await visited.end()).outcome.status is Status.FAILURE

    asyncio.run(run())


@pytest.mark.parametrize("temperature", [1e-40, 1e-310, 0.0])
def test_no_temperature_makes_numbers_of_the_logits_that_are_none(temperature: float) -> None:
    network = tiny_network(320, layers=1, width=32, heads=2, context=512, seed=3)

    async def run() -> None:
        model = ResidentModel("policy", network, renderer(), context=512)
        async with visit(model, temperature=True) as visited:
            answer = await visited.chat(START, temperature=temperature, max_tokens=4)
            assert answer.status_code == 200
            assert (await visited.chat(START, temperature=1e300)).status_code == 400
            assert (await visited.end()).outcome.status is Status.FAILURE

    asyncio.run(run())
