"""The export of Inspect AI's evaluation log.

One sample per episode, as a .eval archive or one .json file, in version 2 of the log's
format, which Inspect itself reads, shows and scores. Every model call and every action is
an event. Each message is stored once, in the sample's pool, however many calls read it.
`inspect_import.py` reads logs back, Inspect's own as well.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zipfile import ZIP_DEFLATED, ZipFile

from palaestra import __version__
from palaestra.core.episode import Episode, Step
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message
from palaestra.core.model import Finish
from palaestra.core.outcome import Limit, Status
from palaestra.store.codec import JSON
from palaestra.store.disk import replacing_file
from palaestra.store.exchange.messages import beside, beyond_text, who_acted
from palaestra.store.exchange.plain_json import REST, head, moment, plain
from palaestra.store.header import events_in_order

VERSION = 2  # of Inspect's log format
LIMITS = {
    Limit.TURNS: "turn",
    Limit.TOKENS: "token",
    Limit.SECONDS: "time",
    Limit.TRIED: "custom",
    Limit.CONTEXT: "context",
    Limit.ENVIRONMENT: "custom",
}


def write_inspect(path: Path, episodes: Iterable[Episode], start: datetime) -> int:
    """Write a log; its name ends in .eval or .json.

    Args:
        path: the file.
        episodes: read one after the other; their keys differ.
        start: when the run began. Episodes record durations, so the times of events are
            their sums from there.

    Returns:
        the number of samples.

    Raises:
        InputError: the folder is missing, or cannot be written to.
        StorageFull: there is no space; an earlier file of that name is intact.
    """
    path = Path(path)
    log = _Log(start)
    with replacing_file(path) as partial, partial.open("wb") as stream:
        if path.suffix == ".json":
            samples = ",\n".join(json.dumps(sample) for sample in map(log.add, episodes))
            top = json.dumps(log.header(), indent=1)
            stream.write(f'{top[:-2]},\n "samples": [\n{samples}\n]\n}}\n'.encode())
            return len(log.summaries)
        with ZipFile(stream, "w", ZIP_DEFLATED) as archive:
            for sample in map(log.add, episodes):
                name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
                archive.writestr(name, json.dumps(sample))
            header = log.header()
            begun = {name: header[name] for name in ("version", "eval", "plan")}
            archive.writestr("_journal/start.json", json.dumps(begun))
            archive.writestr("summaries.json", json.dumps(log.summaries))
            archive.writestr("header.json", json.dumps(header))
    return len(log.summaries)


@dataclass
class _Log:
    """The builder of a log's header from all its samples."""

    start: datetime
    summaries: list[dict[str, Any]] = field(default_factory=list)
    policies: dict[str, int] = field(default_factory=dict)  # and how many calls each made
    worlds: dict[str, None] = field(default_factory=dict)  # in the order of their first episode
    agents: dict[str, None] = field(default_factory=dict)

    def add(self, episode: Episode) -> dict[str, Any]:
        """Add an episode and return its sample."""
        for call in episode.calls:
            self.policies[call.policy] = self.policies.get(call.policy, 0) + 1
        self.worlds[episode.task.environment] = None
        self.agents[episode.agent] = None
        found = sample(episode, self.start)
        kept = ("id", "epoch", "input", "target", "scores", "model_usage")
        self.summaries.append(
            {
                **{name: found[name] for name in kept},
                "completed": True,
                **({"error": found["error"]["message"]} if "error" in found else {}),
                **({"limit": found["limit"]["type"]} if "limit" in found else {}),
            }
        )
        return found

    def header(self) -> dict[str, Any]:
        """Return the log without its samples."""
        created = moment(self.start, 0).isoformat()
        names = list(dict.fromkeys(row["id"] for row in self.summaries))
        about = json.dumps([created, names, *self.worlds, *self.agents, *self.policies])
        name = hashlib.blake2b(about.encode(), digest_size=11).hexdigest()
        return {
            "version": VERSION,
            "status": "success",
            "eval": {
                "eval_id": name,
                "run_id": name,
                "task_id": name,
                "created": created,
                "task": ", ".join(self.worlds) or "no task",
                "solver": ", ".join(self.agents) or "none",
                "dataset": {
                    "name": ", ".join(self.worlds),
                    "samples": len(names),
                    "sample_ids": names,
                    "shuffled": False,
                },
                "model": max(self.policies, key=self.policies.__getitem__, default="none/none"),
                "config": {"epochs": max((row["epoch"] for row in self.summaries), default=1)},
                "packages": {"palaestra": __version__},
            },
            "plan": {"name": ", ".join(self.agents) or "plan", "steps": [], "config": {}},
            "results": self._results(),
            "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
        }

    def _results(self) -> dict[str, Any]:
        scored = [row["scores"] for row in self.summaries if row["scores"]]
        found: dict[str, list[float]] = {} if scored else {"success": [], "reward": []}
        for scores in scored:
            for name, one in scores.items():
                value = {"C": 1.0, "I": 0.0}.get(one["value"], one["value"])
                found.setdefault(name, []).append(value)
        means = {"success": "accuracy"}
        named = [(name, means.get(name, "mean"), values) for name, values in found.items()]
        return {
            "total_samples": len(self.summaries),
            "completed_samples": len(scored),
            "scores": [
                {
                    "name": name,
                    "scorer": name,
                    "scored_samples": len(values),
                    "unscored_samples": len(self.summaries) - len(values),
                    "params": {},
                    "metrics": {
                        metric: {"name": metric, "value": value, "params": {}}
                        for metric, value in ((mean, _mean(values)), ("stderr", _error(values)))
                    },
                }
                for name, mean, values in named
            ],
        }


def sample(episode: Episode, start: datetime) -> dict[str, Any]:
    """Return an episode as one sample of a log."""
    recorded = _SampleEvents(episode, start)
    graph = episode.graph
    usage: dict[str, dict[str, int]] = {}
    for call in episode.calls:
        spent = usage.setdefault(call.policy, {"input_tokens": 0, "output_tokens": 0})
        before = 0 if call.parent is None else len(graph.tokens(call.parent))
        spent["input_tokens"] += before + len(call.prompt)
        spent["output_tokens"] += len(call.completion)
    for spent in usage.values():
        spent["total_tokens"] = spent["input_tokens"] + spent["output_tokens"]
    outcome = episode.outcome
    words = episode.task.instruction or (episode.observation.text if episode.observation else "")
    found: dict[str, Any] = {
        "id": f"{quote(episode.key.phase, safe='/ ')}/{episode.key.group}",
        "epoch": episode.key.member + 1,
        "input": words,
        "target": "",
        "messages": recorded.conversation(),
        "output": recorded.last_output(),
        "scores": _scores(episode),
        "metadata": {REST: head(episode)},
        "store": {},
        "events": recorded.events,
        "model_usage": usage,
        "started_at": moment(start, 0).isoformat(),
        "completed_at": moment(start, episode.usage.seconds).isoformat(),
        "total_time": episode.usage.seconds if math.isfinite(episode.usage.seconds) else 0.0,
        "attachments": {},
        "events_data": {"messages": recorded.pool, "calls": []},
        "turn_count": len(episode.calls),
    }
    if not outcome.scored:
        what = f"{outcome.kind} ({outcome.owner}): {outcome.detail}"
        found["error"] = {"message": what, "traceback": "", "traceback_ansi": ""}
    if outcome.status is Status.TRUNCATED and outcome.limit is not None:
        reached = {Limit.TURNS: episode.usage.turns, Limit.TOKENS: episode.usage.sampled_tokens}
        limit = float(reached.get(outcome.limit, 0))
        found["limit"] = {"type": LIMITS[outcome.limit], "limit": limit, "reason": str(outcome)}
    return found


def _scores(episode: Episode) -> dict[str, JSON]:
    if not episode.outcome.scored:
        return {}
    if players := episode.players:
        return {
            f"return/{name}": {"value": float(one.total), "explanation": str(one.outcome)}
            for name, one in players.items()
        }
    how = {"explanation": str(episode.outcome)}
    return {
        "success": {"value": "C" if episode.outcome.solved else "I", **how},
        "reward": {"value": float(episode.reward)},
    }


class _SampleEvents:
    """The builder of a sample's events, and the messages that they refer to."""

    def __init__(self, episode: Episode, start: datetime) -> None:
        self.pool: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._episode, self._start, self._seconds = episode, start, 0.0
        self._paths: list[list[int]] = []  # indices in the pool: the conversation after each call
        self._graph = MessageGraph()
        for event in events_in_order(episode):
            if isinstance(event, Call):
                self._add_call(event)
            else:
                self._add_step(event)

    def conversation(self) -> list[dict[str, Any]]:
        """Return the messages up to and including the last reply."""
        return [self.pool[place] for place in self._paths[-1]] if self._paths else []

    def last_output(self) -> dict[str, Any]:
        for event in reversed(self.events):
            if event["event"] == "model":
                output: dict[str, Any] = event["output"]
                return output
        return {"model": "none/none", "choices": [], "completion": ""}

    def _add_call(self, call: Call) -> None:
        before = [] if call.parent is None else self._paths[call.parent]
        read = [*before, *(self._pooled(message) for message in call.messages)]
        known = 0 if call.parent is None else len(self._graph.tokens(call.parent))
        self._graph.add(call)
        place = self._pooled(call.reply)
        self._paths.append([*read, place])
        reply = {**self.pool[place], "role": "assistant", "model": call.policy}
        usage = {"input_tokens": known + len(call.prompt), "output_tokens": len(call.completion)}
        usage["total_tokens"] = sum(usage.values())
        rest = plain(call, "messages", "reply", "policy", "role")
        if call.reply.role != "assistant":
            rest["reply_role"] = call.reply.role
        stop = "stop" if call.finish is Finish.STOP else "max_tokens"
        self._add(
            "model",
            call.seconds,
            {"call": {**rest, "new": len(call.messages)}},
            model=call.policy,
            role=call.role,
            input=[],
            input_refs=_ranges(read),
            tools=[],
            tool_choice="none",
            config={},
            output={
                "model": call.policy,
                "choices": [{"message": reply, "stop_reason": stop}],
                "completion": call.reply.text,
                "usage": usage,
            },
        )

    def _add_step(self, step: Step) -> None:
        rest = {**plain(step, "action"), **beyond_text(step.transition.observation)}
        del rest["transition"]["observation"]
        seen, action = step.transition.observation.text, step.action
        if action.call is None:
            data = {"action": action.text, "observation": seen, **who_acted(step)}
            self._add("info", step.seconds, {"step": rest}, source=REST, data=data)
            return
        rest |= {"text": action.text, "call_id": action.call.id}
        failed = {} if step.transition.valid else {"error": {"type": "parsing", "message": seen}}
        self._add(
            "tool",
            step.seconds,
            {"step": rest},
            id=f"call_{len(self.events)}",
            type="function",
            function=action.call.name,
            arguments=plain(action.call)["arguments"],
            result=seen,
            **failed,
        )

    def _add(self, kind: str, seconds: float, rest: Mapping[str, JSON], **more: JSON) -> None:
        began = moment(self._start, self._seconds)
        lasting = seconds if math.isfinite(seconds) else 0.0
        self.events.append(
            {
                "event": kind,
                "uuid": f"{self._episode.key}#{len(self.events)}",
                "timestamp": began.isoformat(),
                "working_start": self._seconds,
                **({} if kind == "info" else {"working_time": lasting}),
                **more,
                "metadata": {REST: rest},
            }
        )
        self._seconds += max(lasting, 0.0)

    def _pooled(self, message: Message) -> int:
        name = f"{self._episode.key}/{len(self.pool)}"
        found: dict[str, Any] = {"id": name, "role": message.role, "content": message.text}
        if (own := beside(message)) is not None:
            found["metadata"] = {REST: own}
        self.pool.append(found)
        return len(self.pool) - 1


def _ranges(indices: list[int]) -> list[list[int]]:
    """Return indices as half-open ranges, in order."""
    found: list[list[int]] = []
    for index in indices:
        if found and found[-1][1] == index:
            found[-1][1] += 1
        else:
            found.append([index, index + 1])
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _error(values: list[float]) -> float:
    """Return the standard error of the mean."""
    if len(values) < 2:
        return 0.0
    off = [value - _mean(values) for value in values]
    return math.sqrt(sum(x * x for x in off) / (len(off) - 1) / len(off))
