"""OpenTelemetry spans: OTLP JSON after the GenAI conventions of the version that is chosen."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import UnknownName
from palaestra.core.message import ToolCall, assistant, system, tool_result, user
from palaestra.core.outcome import Outcome
from palaestra.store.exchange.otel import NEWEST, VERSIONS, trace, write_otel
from palaestra.store.exchange.otel_import import read_otel
from tests.evaluation import made
from tests.store import samples

START = datetime(2026, 1, 1, tzinfo=UTC)
ONE = samples.episode(Key("rl/1", 0))


def spans(episode: Episode = ONE, version: str = NEWEST) -> list[dict[str, Any]]:
    (resource,) = trace(episode, START, version)["resourceSpans"]
    assert resource["schemaUrl"] == VERSIONS[version]
    found: list[dict[str, Any]] = resource["scopeSpans"][0]["spans"]
    return found


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_calls_and_actions_are_spans_within_that_of_the_agent() -> None:
    agent, *rest = spans()
    assert agent["name"] == "invoke_agent direct" and "parentSpanId" not in agent
    assert [span["name"] for span in rest] == ["chat resident", "execute_tool act"] * 3
    assert {span["parentSpanId"] for span in rest} == {agent["spanId"]}
    assert len({span["spanId"] for span in (agent, *rest)}) == 7
    assert {span["traceId"] for span in (agent, *rest)} == {agent["traceId"]}
    assert (len(agent["traceId"]), len(agent["spanId"])) == (32, 16)
    assert agent["startTimeUnixNano"] == str(int(START.timestamp()) * 10**9)
    assert all(int(one["startTimeUnixNano"]) <= int(one["endTimeUnixNano"]) for one in rest)


def test_a_chat_span_has_its_input_its_output_and_its_usage() -> None:
    last = attributes(spans()[-2])
    assert last["gen_ai.operation.name"] == "chat"
    assert last["gen_ai.provider.name"] == "palaestra"
    assert last["gen_ai.request.model"] == "resident"
    assert (last["gen_ai.usage.input_tokens"], last["gen_ai.usage.output_tokens"]) == ("13", "2")
    read = json.loads(last["gen_ai.input.messages"])
    assert [message["role"] for message in read] == ["user", "assistant"] * 2 + ["user"]
    assert read[0]["parts"] == [{"type": "text", "content": "turn 0"}]
    (output,) = json.loads(last["gen_ai.output.messages"])
    assert (output["role"], output["finish_reason"]) == ("assistant", "stop")


def test_the_old_conventions_have_the_old_names_and_no_words() -> None:
    for span in spans(version="1.36"):
        names = attributes(span).keys()
        assert "gen_ai.system" in names and "gen_ai.provider.name" not in names
        assert not names & {"gen_ai.input.messages", "gen_ai.tool.call.result"}
        assert "events" not in span
    with pytest.raises(UnknownName, match=r"1\.36, 1\.41"):
        write_otel(Path("x.jsonl"), [ONE], START, "1.0")


def test_verdicts_and_errors_are_distinguished() -> None:
    (event,) = spans(made.episode("test", 0, made.OUT_OF_TURNS))[0]["events"]
    verdict = attributes(event)
    assert event["name"] == "gen_ai.evaluation.result"
    assert verdict["gen_ai.evaluation.score.value"] == 0.0
    assert verdict["gen_ai.evaluation.score.label"] == "truncated(turns)"
    broken, _, invalid = spans(made.episode("test", 0, made.CRASH, invalid=[1]))
    assert broken["status"] == {"code": 2, "message": "the world went away"}
    assert attributes(broken)["error.type"] == "crash" and "events" not in broken
    assert attributes(invalid)["error.type"] == "invalid_action"


def test_the_protocols_own_reader_takes_it() -> None:
    reason = "opentelemetry-proto is not in the dev extra"
    proto: Any = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2", reason=reason)
    json_format: Any = pytest.importorskip("google.protobuf.json_format", reason=reason)
    document = trace(ONE, START)
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:  # protobuf's JSON has base64 where OTLP's has hexadecimal digits
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    read = json_format.ParseDict(document, proto.TracesData())
    assert len(read.resource_spans[0].scope_spans[0].spans) == 7


def test_every_name_is_one_of_the_conventions() -> None:
    reason = "opentelemetry-semantic-conventions is not in the dev extra"
    known: Any = pytest.importorskip(
        "opentelemetry.semconv._incubating.attributes.gen_ai_attributes", reason=reason
    )
    names = {value for name, value in vars(known).items() if name.startswith("GEN_AI")}
    for version in VERSIONS:
        for span in spans(version=version):
            shown = [span, *span.get("events", ())]
            used = {name for one in shown for name in attributes(one) if name.startswith("gen_ai")}
            assert used and used <= names


FOREIGN = {
    "input": [
        {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]},
    ],
    "asked": {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Paris"}},
}


def foreign(tmp_path: Path, score: float | None) -> Episode:
    """A trace as another instrumentation writes it: words structured, children in any order."""

    def span(number: int, operation: str, start: int, **values: Any) -> dict[str, Any]:
        shown = {"gen_ai.operation.name": operation, **values}
        return {
            "traceId": "ab" * 16,
            "spanId": f"{number:016x}",
            "name": operation,
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(start + 500_000_000),
            "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in shown.items()],
        }

    output = {"role": "assistant", "parts": [FOREIGN["asked"]], "finish_reason": "tool_call"}
    answer = {"type": "tool_call_response", "id": "c1", "response": "rainy"}
    later = [*FOREIGN["input"], output, {"role": "tool", "parts": [answer]}]
    done = {"role": "assistant", "parts": [{"type": "text", "content": "It rains."}]}
    found = [
        span(1, "invoke_agent", 0, **{"gen_ai.agent.name": "guide"}),
        span(4, "chat", 3_000_000_000, **_chat(later, done)),
        span(2, "chat", 1_000_000_000, **_chat(FOREIGN["input"], output)),
        span(
            3, "execute_tool", 2_000_000_000,
            **{
                "gen_ai.tool.name": "weather",
                "gen_ai.tool.call.arguments": '{"city": "Paris"}',
                "gen_ai.tool.call.result": "rainy",
            },
        ),
    ]  # fmt: skip
    if score is not None:
        value = {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": score}}
        found[0]["events"] = [{"name": "gen_ai.evaluation.result", "attributes": [value]}]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": found}]}]}
    (tmp_path / "x.jsonl").write_text(json.dumps(document))
    (episode,) = read_otel(tmp_path / "x.jsonl")
    return episode


def _chat(read: Any, output: Any) -> dict[str, str]:
    return {
        "gen_ai.request.model": "gpt",
        "gen_ai.system_instructions": '[{"type": "text", "content": "Be brief."}]',
        "gen_ai.input.messages": json.dumps(read),
        "gen_ai.output.messages": json.dumps([output]),
    }


def test_a_trace_of_others_becomes_an_episode(tmp_path: Path) -> None:
    episode = foreign(tmp_path, 1.0)
    first, second = episode.calls
    asked = (system("Be brief."), user("Weather in Paris?"))
    assert first.messages == asked
    assert first.reply == assistant("", tool_calls=[ToolCall("weather", {"city": "Paris"}, "c1")])
    assert (second.parent, second.messages) == (0, (tool_result("rainy", id="c1"),))
    (step,) = episode.steps
    assert step.action.call == ToolCall("weather", {"city": "Paris"}) and step.call == 0
    assert (episode.agent, episode.outcome, episode.reward) == ("guide", Outcome.success(), 1.0)
    assert episode.usage.seconds == 3.5


def test_a_trace_of_others_without_a_verdict_is_not_scored(tmp_path: Path) -> None:
    assert not foreign(tmp_path, None).outcome.scored
    assert foreign(tmp_path, 0.0).outcome == Outcome.failure()
