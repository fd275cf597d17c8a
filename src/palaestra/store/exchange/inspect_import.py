"""The import of Inspect AI's evaluation logs.

Logs of palaestra are restored exactly. In a log of Inspect, each model event becomes a
call of the message graph (without tokens, which Inspect does not record), each tool event
a step, and the first score decides success; calls of scorers have the role "judge".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import InputError, RunVersionMismatch
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message, ToolCall, assistant, text_message
from palaestra.core.model import Finish
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.core.task import Split, Task
from palaestra.store.codec import JSON
from palaestra.store.exchange.archive import Archive
from palaestra.store.exchange.inspect_log import VERSION
from palaestra.store.exchange.invalid_documents import understood
from palaestra.store.exchange.messages import observation_json, written
from palaestra.store.exchange.plain_json import (
    REST,
    built,
    check_version,
    checked,
    judged,
    made_step,
    read_bytes,
    speaker,
    thoughts,
    unjudged,
    whole,
)

ATTACHED = "attachment://"  # a long text is stored once, among the sample's attachments
LIMITS = {
    "turn": Limit.TURNS,
    "message": Limit.TURNS,
    "token": Limit.TOKENS,
    "time": Limit.SECONDS,
    "working": Limit.SECONDS,
    "context": Limit.CONTEXT,
}  # every other one is the environment's own
VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # correct, partial, incorrect, no answer


def read_inspect(path: Path) -> Iterator[Episode]:
    """Yield the episodes of a log, in the order of its samples.

    Raises:
        InputError: the file is missing, truncated, or not a log.
        RunVersionMismatch: it has another version.
        MissingPackage: it is compressed with Zstandard, and pyarrow is not installed.
    """
    path = Path(path)
    content = read_bytes(path)
    if content[:2] == b"PK":
        yield from _of_archive(path)
        return
    try:
        log = json.loads(content)
    except ValueError as error:
        raise InputError(
            f"{path} is not a log of Inspect: it is neither an archive nor complete JSON ({error})."
        ) from error
    _check(log, path)
    groups = _groups(log)
    for number, sample in enumerate(log.get("samples") or (), 1):
        yield episode_of(sample, log, f"{path}, sample {number}", groups)


def _of_archive(path: Path) -> Iterator[Episode]:
    with Archive.open(path) as archive:
        names = archive.names()
        head = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
        if head is None:
            raise InputError(
                f"{path} is an archive, but not a log of Inspect: it has no header.json."
            )
        log = archive.document(head)
        _check(log, path)
        groups = _groups(log)
        for name in names:
            if name.startswith("samples/"):
                yield episode_of(archive.document(name), log, f"{path}, {name}", groups)


def _check(log: JSON, path: Path) -> None:
    if not isinstance(log, Mapping) or not {"version", "eval"} <= log.keys():
        raise InputError(f"{path} is not a log of Inspect: it has no version, or no eval.")
    version = log["version"]
    if version != VERSION:
        remedy = "rewrite it with `inspect log convert`" if version == 1 else "update palaestra"
        raise RunVersionMismatch(
            f"{path} is a log of version {version!r}, and palaestra reads version {VERSION}; "
            f"{remedy}."
        )


def _groups(log: Mapping[str, Any]) -> dict[str, int]:
    """Return the group of each sample: its epochs are rollouts of the same task."""
    ids = (log["eval"].get("dataset") or {}).get("sample_ids") or ()
    return {str(name): number for number, name in enumerate(dict.fromkeys(ids))}


def episode_of(
    sample: Mapping[str, Any], log: Mapping[str, Any], where: str, groups: dict[str, int]
) -> Episode:
    """Return the episode of one sample of a log; add unknown samples to `groups`.

    Raises:
        InputError: it is not a sample.
        RunVersionMismatch: another version of palaestra wrote it.
    """
    with understood(where, "sample of an Inspect log"):
        rest = (sample.get("metadata") or {}).get(REST)
        events = [event for event in sample.get("events") or () if not event.get("pending")]
        pool = (sample.get("events_data") or {}).get("messages") or ()
        if isinstance(rest, Mapping) and "key" in rest:
            check_version(rest.get("format"), where)
            return _own(rest, events, pool)
        group = groups.setdefault(str(sample["id"]), len(groups))
        return _foreign(sample, log, events, group)


# ── logs of palaestra ────────────────────────────────────────────────────────


def _own(
    rest: Mapping[str, JSON], events: Sequence[Mapping[str, Any]], pool: Sequence[Any]
) -> Episode:
    calls: list[Call] = []
    steps: list[Step] = []
    for event in events:
        own = (event.get("metadata") or {}).get(REST) or {}
        if "call" in own:
            calls.append(_own_call(event, dict(own["call"]), pool))
        elif "step" in own:
            steps.append(_own_step(event, dict(own["step"])))
    return whole(rest, calls, steps)


def _own_call(event: Mapping[str, Any], own: dict[str, Any], pool: Sequence[Any]) -> Call:
    new = own.pop("new")
    read = _input(event, pool)
    reply = event["output"]["choices"][0]["message"]
    own["messages"] = [_noted(message["role"], message) for message in read[len(read) - new :]]
    own["reply"] = _noted(own.pop("reply_role", "assistant"), reply)
    call: Call = built(Call, {**own, "policy": event["model"], "role": event["role"]})
    return call


def _own_step(event: Mapping[str, Any], own: dict[str, Any]) -> Step:
    if event["event"] == "tool":
        made = {"name": event["function"], "arguments": event["arguments"]}
        call = {**made, "id": own.pop("call_id", "")}
        own["action"], seen = {"text": own.pop("text"), "call": call}, event["result"]
    else:
        own["action"], seen = {"text": event["data"]["action"]}, event["data"]["observation"]
    own["transition"] = {
        **own["transition"],
        "observation": observation_json(seen, own),
    }
    step: Step = built(Step, own)
    return step


def _noted(role: str, message: Mapping[str, Any]) -> dict[str, JSON]:
    """Return a message as palaestra wrote it."""
    return written(role, message["content"], (message.get("metadata") or {}).get(REST))


def _input(event: Mapping[str, Any], pool: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the prompt of a model event."""
    refs = event.get("input_refs")
    if refs is None:
        return list(event["input"])
    return [message for first, last in refs for message in pool[first:last]]


# ── logs of Inspect ──────────────────────────────────────────────────────────


def _foreign(
    sample: Mapping[str, Any],
    log: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    group: int,
) -> Episode:
    attached = sample.get("attachments") or {}
    found: dict[str, Any] = _with_attachments({**sample, "events": list(events)}, attached)
    spec = log["eval"]
    graph, steps = MessageGraph(), list[Step]()
    scoring: set[str] = set()  # spans of scorers
    for event in found["events"]:
        kind = event["event"]
        if kind == "span_begin" and (
            event.get("type") == "scorers" or event.get("parent_id") in scoring
        ):
            scoring.add(event["id"])
        elif kind == "model":
            role = event.get("role") or ("judge" if event.get("span_id") in scoring else "agent")
            _add_call(graph, event, role, (found.get("events_data") or {}).get("messages") or ())
        elif kind == "tool":
            steps.append(_step(event, len(steps), _spoken(graph)))
    if not found["events"]:  # a log without a transcript has the conversation alone
        _add_conversation(graph, found.get("messages") or (), spec["model"])
    answer = (found.get("output") or {}).get("completion") or ""
    if not _last_asks(found.get("messages") or ()) and answer:
        steps.append(made_step(len(steps), _spoken(graph), Action(answer), ""))
    scores = found.get("scores") or {}
    reward = _value(next(iter(scores.values()))["value"]) if scores else None
    text = _text(found["input"])
    episode = Episode(
        key=Key(f"eval/{spec['task']}", group, int(found["epoch"]) - 1),
        task=Task(
            id=str(found["id"]),
            environment=f"inspect/{spec['task']}",
            seed=0,
            split=Split.TEST,
            instruction=text,
            parameters={"target": found["target"], **(found.get("metadata") or {})},
        ),
        agent=str(spec.get("solver") or "inspect"),
        observation=Observation(text),
        calls=tuple(graph.calls),
        steps=tuple(steps) if reward is None else judged(steps, reward, reward >= 1),
        outcome=_outcome(found, reward),
        usage=_usage(found, len(steps)),
        labels={f"score/{name}": _label(score["value"]) for name, score in scores.items()},
    )
    return checked(episode)


def _add_call(
    graph: MessageGraph, event: Mapping[str, Any], role: str, pool: Sequence[Any]
) -> None:
    choices = (event.get("output") or {}).get("choices") or ()
    if not choices:  # the model did not reply
        return
    prompt = [_message(message) for message in _input(event, pool)]
    parent, known, _ = graph.place(prompt, event["model"], role)
    graph.add(
        Call(
            index=len(graph.calls),
            parent=parent,
            role=role,
            messages=tuple(prompt[known:]),
            prompt=(),
            reply=_message(choices[0]["message"]),
            completion=(),
            logprobs=(),
            finish=Finish.LENGTH if choices[0].get("stop_reason") == "max_tokens" else Finish.STOP,
            policy=event["model"],
            version=0,
            seconds=float(event.get("working_time") or 0.0),
        )
    )


def _add_conversation(graph: MessageGraph, messages: Sequence[Any], model: str) -> None:
    conversation = [_message(message) for message in messages]
    for position, message in enumerate(conversation):
        if message.role == "assistant":
            parent, known, _ = graph.place(conversation[:position], model, "agent")
            new = tuple(conversation[known:position])
            index = len(graph.calls)
            graph.add(Call(index, parent, "agent", new, (), message, (), (), Finish.STOP, model, 0))


def _step(event: Mapping[str, Any], index: int, call: int | None) -> Step:
    made = ToolCall(event["function"], event["arguments"])
    error = event.get("error")
    seen = error["message"] if error else _text(event.get("result"))
    return made_step(index, call, Action(str(made), made), seen, valid=not error)


def _spoken(graph: MessageGraph) -> int | None:
    return len(graph.calls) - 1 if graph.calls else None


def _last_asks(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the conversation ends without an answer: in a tool call or its result."""
    return bool(messages) and (
        messages[-1]["role"] == "tool" or bool(messages[-1].get("tool_calls"))
    )


def _message(message: Mapping[str, Any]) -> Message:
    """Return a message as text; tool calls are written in palaestra's text form."""
    calls = [
        str(ToolCall(call["function"], call["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    error = message.get("error")
    text = error["message"] if error else _text(message["content"])
    if message["role"] == "assistant":
        return assistant("\n".join(filter(None, [text, *calls])))
    return text_message(speaker(message["role"]), text)


def _text(content: JSON) -> str:
    """Return the text of a message's content; other media become their type."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return json.dumps(content)
    texts = []
    for part in content:
        if "content" in part and "role" in part:  # an input that is a conversation
            texts.append(_text(part["content"]))
        elif part.get("type") == "reasoning":
            texts.append(thoughts(part["reasoning"]).rstrip())
        else:
            texts.append(part["text"] if part.get("type") == "text" else f"[{part.get('type')}]")
    return "\n".join(filter(None, texts))


def _value(value: JSON) -> float | None:
    """Return a score as a number; None for others, such as several values in one."""
    if isinstance(value, bool | int | float):
        return float(value)
    return VALUES.get(value) if isinstance(value, str) else None


def _label(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _outcome(sample: Mapping[str, Any], reward: float | None) -> Outcome:
    error, limit = sample.get("error"), sample.get("limit")
    if error:
        return Outcome.error("sample", Owner.INFRASTRUCTURE, error["message"])
    if reward is not None and reward >= 1:
        return Outcome.success()
    if limit:
        return Outcome.truncated(LIMITS.get(limit["type"], Limit.ENVIRONMENT))
    if reward is None:
        return unjudged("the sample has no score that is a number")
    return Outcome.failure()


def _usage(sample: Mapping[str, Any], turns: int) -> Usage:
    spent = (sample.get("model_usage") or {}).values()
    return Usage(
        turns=turns,
        prompt_tokens=sum(one.get("input_tokens", 0) for one in spent),
        sampled_tokens=sum(one.get("output_tokens", 0) for one in spent),
        seconds=float(sample.get("total_time") or 0.0),
    )


def _with_attachments(value: JSON, attached: Mapping[str, str]) -> Any:
    """Return the value with every reference to an attachment replaced by its text."""
    if isinstance(value, str) and value.startswith(ATTACHED):
        return attached.get(value.removeprefix(ATTACHED), value)
    if isinstance(value, list):
        return [_with_attachments(item, attached) for item in value]
    if isinstance(value, dict):
        return {name: _with_attachments(item, attached) for name, item in value.items()}
    return value
