"""The import of OpenTelemetry GenAI spans from OTLP JSON.

Traces of palaestra are restored exactly. Each other trace becomes an episode: its chat
spans become calls (without tokens, which spans do not contain), its tool spans steps, and
an evaluation result decides success. Spans without their texts cannot be read.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import InputError
from palaestra.core.graph import Call, MessageGraph
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
from palaestra.core.outcome import Outcome
from palaestra.core.task import Split, Task
from palaestra.store.codec import JSON
from palaestra.store.exchange.invalid_documents import understood
from palaestra.store.exchange.messages import observation_json
from palaestra.store.exchange.otel import FAILED
from palaestra.store.exchange.plain_json import (
    REST,
    built,
    check_version,
    checked,
    judged,
    made_step,
    plain,
    read_documents,
    speaker,
    unjudged,
    whole,
)

WORDS = "gen_ai.input.messages"


def read_otel(path: Path) -> Iterator[Episode]:
    """Yield the episodes of a file of traces, in the order of their first spans.

    Raises:
        InputError: the file is missing, contains something else, or lacks texts.
        RunVersionMismatch: another version of palaestra wrote it.
    """
    traces: dict[str, list[Mapping[str, Any]]] = {}
    for number, document in enumerate(read_documents(path), 1):
        where = f"{path}, line {number}"
        if not isinstance(document, Mapping) or "resourceSpans" not in document:
            raise InputError(f"{where} contains no spans in OTLP JSON: it has no resourceSpans.")
        with understood(where, "OTLP JSON"):
            for resource in document["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        read = {**span, "attributes": _values(span.get("attributes") or ())}
                        traces.setdefault(span["traceId"], []).append(read)
    for number, (name, spans) in enumerate(traces.items()):
        yield _episode(spans, f"{path}, trace {name}", number)


def _episode(spans: Sequence[Mapping[str, Any]], where: str, number: int) -> Episode:
    chats = [span for span in spans if _operation(span) == "chat"]
    silent = [span for span in chats if WORDS not in span["attributes"]]
    if silent:
        raise InputError(
            f"{where} contains no texts: {len(silent)} of its {len(chats)} chat spans have no "
            f"{WORDS}; record the content, and follow the conventions of 1.37 or later."
        )
    with understood(where, "trace of an agent"):
        heads = [s["attributes"].get(f"{REST}.episode") for s in spans]
        own = next((json.loads(found) for found in heads if found), None)
        if own is not None:
            check_version(own.get("format"), where)
            calls = [_own_call(span["attributes"]) for span in chats]
            steps = [_own_step(s["attributes"]) for s in spans if f"{REST}.step" in s["attributes"]]
            return whole(own, calls, steps)
        return _foreign(sorted(spans, key=lambda span: int(span["startTimeUnixNano"])), number)


def _own_call(attributes: Mapping[str, Any]) -> Call:
    own = json.loads(attributes[f"{REST}.call"])
    read, new = _messages(attributes[WORDS]), own.pop("new")
    reply = _messages(attributes["gen_ai.output.messages"])[0]
    own["messages"] = [plain(one) for one in read[len(read) - new :]]
    own["reply"] = plain(reply) | {"role": own.pop("reply_role", "assistant")}
    call: Call = built(Call, {**own, "policy": attributes["gen_ai.request.model"]})
    return call


def _own_step(attributes: Mapping[str, Any]) -> Step:
    own = json.loads(attributes[f"{REST}.step"])
    arguments = json.loads(attributes["gen_ai.tool.call.arguments"])
    if "text" in own:
        made = {"name": attributes["gen_ai.tool.name"], "arguments": arguments}
        call = {**made, "id": own.pop("call_id", "")}
        own["action"] = {"text": own.pop("text"), "call": call}
    else:
        own["action"] = {"text": arguments["action"]}
    text = attributes["gen_ai.tool.call.result"]
    seen = observation_json(text, own)
    own["transition"] = {**own["transition"], "observation": seen}
    step: Step = built(Step, own)
    return step


def _foreign(spans: Sequence[Mapping[str, Any]], number: int) -> Episode:
    graph, steps = MessageGraph(), list[Step]()
    agent, reward, read, sampled = "agent", None, 0, 0
    for span in spans:
        attributes = span["attributes"]
        for event in span.get("events") or ():
            if event["name"] == "gen_ai.evaluation.result" and reward is None:
                value = _values(event["attributes"]).get("gen_ai.evaluation.score.value")
                reward = None if value is None else float(value)
        if _operation(span) == "invoke_agent" and agent == "agent":
            agent = attributes.get("gen_ai.agent.name", agent)
        elif _operation(span) == "chat":
            _add_call(graph, span)
            read += attributes.get("gen_ai.usage.input_tokens", 0)
            sampled += attributes.get("gen_ai.usage.output_tokens", 0)
        elif _operation(span) == "execute_tool":
            steps.append(_step(span, len(steps), len(graph.calls) - 1 if graph.calls else None))
    first = graph.calls[0].messages[-1].text if graph.calls and graph.calls[0].messages else ""
    success = reward is not None and reward >= 1
    ended = Outcome.success() if success else Outcome.failure()
    began, end = int(spans[0]["startTimeUnixNano"]), max(int(s["endTimeUnixNano"]) for s in spans)
    episode = Episode(
        key=Key(f"otel/{agent}", number),
        task=Task(spans[0]["traceId"], "otel", 0, Split.TEST, first),
        agent=agent,
        observation=Observation(first),
        calls=tuple(graph.calls),
        steps=tuple(steps) if reward is None else judged(steps, reward, success),
        outcome=unjudged("the trace has no evaluation result") if reward is None else ended,
        usage=Usage(len(steps), read, sampled, (end - began) / 1e9),
    )
    return checked(episode)


def _add_call(graph: MessageGraph, span: Mapping[str, Any]) -> None:
    attributes = span["attributes"]
    replies = _messages(attributes.get("gen_ai.output.messages") or "[]")
    if not replies:
        return
    instructions = _decoded(attributes.get("gen_ai.system_instructions") or "[]")
    head = Message("system", tuple(map(_part, instructions)))
    read = [*([head] if head.parts else []), *_messages(attributes[WORDS])]
    policy = attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model", "")
    parent, known, _ = graph.place(read, policy, "agent")
    reasons = attributes.get("gen_ai.response.finish_reasons") or ["stop"]
    graph.add(
        Call(
            index=len(graph.calls),
            parent=parent,
            role="agent",
            messages=tuple(read[known:]),
            prompt=(),
            reply=Message("assistant", replies[0].parts),
            completion=(),
            logprobs=(),
            finish=Finish.LENGTH if reasons[0] == "length" else Finish.STOP,
            policy=policy,
            version=0,
            seconds=(int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9,
        )
    )


def _step(span: Mapping[str, Any], index: int, call: int | None) -> Step:
    attributes = span["attributes"]
    arguments = _decoded(attributes.get("gen_ai.tool.call.arguments") or "{}")
    made = ToolCall(
        attributes["gen_ai.tool.name"], arguments if isinstance(arguments, dict) else {}
    )
    result = attributes.get("gen_ai.tool.call.result") or ""
    seen = result if isinstance(result, str) else json.dumps(result)
    valid = (span.get("status") or {}).get("code") != FAILED
    return made_step(index, call, Action(str(made), made), seen, valid)


def _operation(span: Mapping[str, Any]) -> str:
    return str(span["attributes"].get("gen_ai.operation.name", ""))


def _messages(value: JSON) -> list[Message]:
    return [
        Message(speaker(one["role"]), tuple(map(_part, one.get("parts") or ())))
        for one in _decoded(value)
    ]


def _part(part: Mapping[str, Any]) -> Part:
    """Return a part of a message; an unknown kind becomes its name as text."""
    match part["type"]:
        case "text":
            return Text(part["content"])
        case "reasoning":
            return Reasoning(part["content"], part.get("signature") or "")
        case "tool_call":
            made = part.get("arguments") or {}
            return ToolCall(part["name"], made, part.get("id") or "")
        case "tool_call_response":
            answer = part.get("response", part.get("result"))
            text = answer if isinstance(answer, str) else json.dumps(answer)
            named = (part.get("id") or "", bool(part.get("error")), part.get("name") or "")
            return ToolResult(text, *named)
        case "blob" if part.get("modality") == "image":
            return Image.of(b64decode(part["content"]))
        case kind:
            return Text(f"[{kind}]")


def _decoded(value: JSON) -> Any:
    """Return structured content, which exporters write as JSON text or as it is."""
    return json.loads(value) if isinstance(value, str) else value


def _values(attributes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {one["key"]: _plain(one["value"]) for one in attributes}


def _plain(value: Mapping[str, Any]) -> Any:
    """Return the value of an OTLP value object."""
    for kind, content in value.items():
        if kind == "intValue":
            return int(content)
        if kind == "arrayValue":
            return [_plain(item) for item in content.get("values") or ()]
        if kind == "kvlistValue":
            return _values(content.get("values") or ())
        return content
    return None
