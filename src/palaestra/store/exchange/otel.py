"""The export of OpenTelemetry GenAI spans: OTLP JSON, one episode (a trace) per line.

Source: the semantic conventions for GenAI spans and agent spans, which are in development;
the written version is an option. Up to 1.36, texts were in log events, which a file of
traces does not contain; since then they are attributes of the spans. Episodes record
durations, not times: spans follow each other from the start of the run.
`otel_import.py` reads traces back.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from palaestra import __version__
from palaestra.core.episode import Episode, Step
from palaestra.core.errors import UnknownName
from palaestra.core.graph import Call
from palaestra.core.message import (
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from palaestra.core.model import Finish
from palaestra.store.codec import JSON
from palaestra.store.exchange.messages import beyond_text, shown, who_acted
from palaestra.store.exchange.plain_json import REST, head, moment, plain, write_lines
from palaestra.store.header import events_in_order

VERSIONS = {
    "1.36": "https://opentelemetry.io/schemas/1.36.0",
    "1.41": "https://opentelemetry.io/schemas/1.41.0",
}
"""The versions of the conventions, each with the URL of its schema."""

NEWEST = "1.41"
INTERNAL, CLIENT = 1, 3  # kinds of spans
FAILED = 2  # the status of a failed span
ACT = "act"  # the tool of text actions


def write_otel(
    path: Path, episodes: Iterable[Episode], start: datetime, version: str = NEWEST
) -> int:
    """Write traces, one per line; return their number.

    Args:
        path: the file.
        episodes: read one after the other.
        start: when the run began.
        version: of the conventions, one of VERSIONS.

    Raises:
        UnknownName: the version does not exist.
        InputError: the folder is missing, or cannot be written to.
        StorageFull: there is no space; an earlier file of that name is intact.
    """
    if version not in VERSIONS:
        raise UnknownName("version of the GenAI conventions", version, VERSIONS)
    return write_lines(path, (trace(episode, start, version) for episode in episodes))


def trace(episode: Episode, start: datetime, version: str = NEWEST) -> dict[str, JSON]:
    """Return an episode as one OTLP document: the agent's span with spans of calls and actions."""
    spans = _Spans(episode, start, version)
    spans.add_agent()
    for event in events_in_order(episode):
        if isinstance(event, Call):
            spans.add_call(event)
        else:
            spans.add_step(event)
    service = {"service.name": "palaestra", "service.version": __version__}
    scope = {"name": "palaestra", "version": __version__}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(service)},
                "scopeSpans": [
                    {"scope": scope, "spans": spans.found, "schemaUrl": VERSIONS[version]}
                ],
                "schemaUrl": VERSIONS[version],
            }
        ]
    }


class _Spans:
    """The builder of one episode's spans."""

    def __init__(self, episode: Episode, start: datetime, version: str) -> None:
        self.found: list[dict[str, Any]] = []
        self._episode, self._start = episode, start
        self._with_texts = version != "1.36"  # whether spans contain texts
        self._provider = "gen_ai.provider.name" if self._with_texts else "gen_ai.system"
        self._graph = episode.graph
        self._seconds = 0.0
        seed = f"{moment(start, 0).isoformat()} {episode.key}"
        self._trace = hashlib.blake2b(seed.encode(), digest_size=16).hexdigest()

    def add_agent(self) -> None:
        episode, outcome = self._episode, self._episode.outcome
        policies = [call.policy for call in episode.calls]
        agent = self._add(
            f"invoke_agent {episode.agent}",
            INTERNAL,
            episode.usage.seconds,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": episode.agent,
                "gen_ai.conversation.id": str(episode.key),
                "gen_ai.usage.input_tokens": episode.usage.prompt_tokens,
                "gen_ai.usage.output_tokens": episode.usage.sampled_tokens,
                **({"gen_ai.request.model": max(policies, key=policies.count)} if policies else {}),
                f"{REST}.episode": json.dumps(head(episode)),
            },
        )
        if not outcome.scored:
            agent["status"] = {"code": FAILED, "message": outcome.detail}
            agent["attributes"] += _attributes({"error.type": str(outcome.kind)})
        elif self._with_texts:
            agent["events"] = [
                {
                    "name": "gen_ai.evaluation.result",
                    "timeUnixNano": agent["endTimeUnixNano"],
                    "attributes": _attributes(verdict),
                }
                for verdict in _verdicts(episode)
            ]

    def add_call(self, call: Call) -> None:
        parent = call.parent
        known = 0 if parent is None else len(self._graph.tokens(parent))
        rest = plain(call, "messages", "reply", "policy")
        if call.reply.role != "assistant":
            rest["reply_role"] = call.reply.role
        reason = "stop" if call.finish is Finish.STOP else "length"
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": call.policy,
            "gen_ai.response.model": call.policy,
            "gen_ai.response.finish_reasons": [reason],
            "gen_ai.usage.input_tokens": known + len(call.prompt),
            "gen_ai.usage.output_tokens": len(call.completion),
            "gen_ai.conversation.id": str(self._episode.key),
            f"{REST}.call": json.dumps({**rest, "new": len(call.messages)}),
        }
        if self._with_texts:
            read = [*(() if parent is None else self._graph.conversation(parent)), *call.messages]
            reply = {**_message(call.reply), "role": "assistant", "finish_reason": reason}
            attributes["gen_ai.input.messages"] = json.dumps([_message(one) for one in read])
            attributes["gen_ai.output.messages"] = json.dumps([reply])
        self._add(f"chat {call.policy}", CLIENT, call.seconds, attributes)

    def add_step(self, step: Step) -> None:
        call = step.action.call
        name = ACT if call is None else call.name
        rest = plain(step, "action")
        del rest["transition"]["observation"]
        if self._with_texts:
            rest |= beyond_text(step.transition.observation)
        attributes: dict[str, JSON] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": f"{self._episode.key}#{len(self.found)}",
            **{f"{REST}.{name}": value for name, value in who_acted(step).items()},
            f"{REST}.step": json.dumps(
                rest if call is None else {**rest, "text": step.action.text, "call_id": call.id}
            ),
        }
        if self._with_texts:
            text = {"action": step.action.text}
            arguments = text if call is None else plain(call)["arguments"]
            attributes["gen_ai.tool.call.arguments"] = json.dumps(arguments)
            attributes["gen_ai.tool.call.result"] = step.transition.observation.text
        span = self._add(f"execute_tool {name}", INTERNAL, step.seconds, attributes)
        if not step.transition.valid:
            span["status"] = {"code": FAILED, "message": "not understood"}
            span["attributes"] += _attributes({"error.type": "invalid_action"})

    def _add(
        self, name: str, kind: int, seconds: float, attributes: Mapping[str, JSON]
    ) -> dict[str, Any]:
        lasting = max(seconds, 0.0) if math.isfinite(seconds) else 0.0
        number = hashlib.blake2b(f"{self._trace} {len(self.found)}".encode(), digest_size=8)
        span: dict[str, Any] = {"traceId": self._trace, "spanId": number.hexdigest()}
        if self.found:
            span["parentSpanId"] = self.found[0]["spanId"]
        span |= {
            "name": name,
            "kind": kind,
            "startTimeUnixNano": self._nanoseconds(self._seconds),
            "endTimeUnixNano": self._nanoseconds(self._seconds + lasting),
            "attributes": _attributes({**attributes, self._provider: "palaestra"}),
        }
        if self.found:  # the first span covers all others
            self._seconds += lasting
        self.found.append(span)
        return span

    def _nanoseconds(self, seconds: float) -> str:
        when = moment(self._start, seconds)
        return str(int(when.timestamp()) * 10**9 + when.microsecond * 1000)


def _verdicts(episode: Episode) -> list[dict[str, JSON]]:
    """Return the attributes of each result: of success, or of the return of each player."""
    named = [("success", float(episode.outcome.solved), episode.outcome)]
    if players := episode.players:
        named = [(f"return/{name}", float(one.total), one.outcome) for name, one in players.items()]
    return [
        {
            "gen_ai.evaluation.name": name,
            "gen_ai.evaluation.score.value": value,
            "gen_ai.evaluation.score.label": str(outcome),
        }
        for name, value, outcome in named
    ]


def _message(message: Message) -> dict[str, JSON]:
    return {"role": message.role, "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> dict[str, JSON]:
    """Return a part in the convention's form; fields it lacks have names of ours."""
    match part:
        case Text():
            return {"type": "text", "content": part.text}
        case Image():
            return shown(part)
        case Reasoning():
            return {"type": "reasoning", "content": part.text, "signature": part.signature}
        case ToolCall():
            return {**plain(part), "type": "tool_call"}
        case ToolResult():
            rest = {"id": part.id, "error": part.error, "name": part.name}
            return {"type": "tool_call_response", "response": part.text, **rest}


def _attributes(values: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    return [{"key": key, "value": _any_value(value)} for key, value in values.items()]


def _any_value(value: JSON) -> dict[str, JSON]:
    """Return a value in OTLP's form: integers as text, since JSON's numbers are too narrow."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    return {"stringValue": value}
