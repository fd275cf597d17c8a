"""The import of ATIF trajectories, the format of the Harbor project.

Trajectories of palaestra are restored exactly. In others, each agent step becomes a
call (with its token ids, if it has them) and each tool call a step. ATIF does not record
success: it is read from Harbor's result.json if that file is beside the trajectory;
otherwise the episode has no valid result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import InputError
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message, ToolCall, assistant, text_message
from palaestra.core.model import Finish
from palaestra.core.outcome import Outcome
from palaestra.core.task import Split, Task
from palaestra.store.codec import JSON
from palaestra.store.exchange.invalid_documents import understood
from palaestra.store.exchange.messages import observation_json, written
from palaestra.store.exchange.plain_json import (
    REST,
    built,
    check_version,
    checked,
    judged,
    made_step,
    read_documents,
    speaker,
    thoughts,
    unjudged,
    whole,
)

NEWEST = 8  # the newest N of the versions ATIF-v1.N that are read
NO_OUTCOME = "it is not written by palaestra, and ATIF tells no outcome"


def read_atif(path: Path) -> Iterator[Episode]:
    """Yield the episodes of a file of trajectories, or of all trajectories below a folder.

    Raises:
        InputError: there is none, or one of them is invalid, truncated or newer.
        RunVersionMismatch: another version of palaestra wrote one of them.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*.json*")) if _looks_right(file)]
    number = 0
    for file in files:
        for document in read_documents(file):
            yield episode_of(document, str(file), number, _reward_beside(file))
            number += 1
    if not number:
        raise InputError(f"{path} contains no ATIF trajectory; give the folder of Harbor's trials.")


def episode_of(document: JSON, where: str, number: int = 0, reward: float | None = None) -> Episode:
    """Return the episode of document `number` of a source, with the reward of a verifier."""
    if not isinstance(document, Mapping) or "schema_version" not in document:
        raise InputError(f"{where} is not an ATIF trajectory: it has no schema_version.")
    version = str(document["schema_version"])
    known = re.fullmatch(r"ATIF-v1\.(\d+)", version)
    if known is None or int(known[1]) > NEWEST:
        raise InputError(
            f"{where} has the schema {version}, and palaestra reads ATIF-v1.0 to "
            f"ATIF-v1.{NEWEST}; convert it to one of these, or update palaestra."
        )
    with understood(where, "ATIF trajectory"):
        steps: list[dict[str, Any]] = list(document["steps"])
        for position, step in enumerate(steps, 1):
            if step["step_id"] != position:
                raise ValueError(f"step {position} has the step_id {step['step_id']}")
        rest = (document.get("extra") or {}).get(REST)
        if isinstance(rest, Mapping) and "key" in rest:
            check_version(rest.get("format"), where)
            return _own(rest, steps)
        return _foreign(document, steps, number, reward)


# ── trajectories of palaestra ────────────────────────────────────────────────


def _own(rest: Mapping[str, JSON], steps: Sequence[Mapping[str, Any]]) -> Episode:
    graph = MessageGraph()
    acted: list[Step] = []
    new: list[dict[str, JSON]] = []
    results: list[Mapping[str, Any]] = []
    for step in steps:
        own = (step.get("extra") or {}).get(REST) or {}
        call = own.get("call")
        if call is not None:
            repeated = call.get("heard")  # the role in which the prompt repeats the observation
            if repeated:
                seen = results[-1]["extra"][REST].get("images", ())
                new = [written(repeated, results[-1]["content"])]
                new[0]["parts"] = [*new[0]["parts"], *seen]
            graph.add(_own_call(step, call, new, graph))
            new = []
        elif not own.get("nothing") and "observation" not in step:
            role = own.get("role", step["source"])
            new.append(written(role, step["message"], own.get("parts")))
        results = (step.get("observation") or {}).get("results", [])
        tools = {tool["tool_call_id"]: tool for tool in step.get("tool_calls") or ()}
        acted.extend(_own_step(step, result, tools) for result in results)
    return whole(rest, graph.calls, acted)


def _own_call(
    step: Mapping[str, Any], own: Mapping[str, Any], new: Sequence[JSON], graph: MessageGraph
) -> Call:
    metrics = step.get("metrics") or {}
    known = 0 if own["parent"] is None else len(graph.tokens(own["parent"]))
    role = own.get("reply_role", "assistant")
    made = {
        **{name: value for name, value in own.items() if name != "heard"},
        "messages": list(new),
        "prompt": (metrics.get("prompt_token_ids") or [])[known:],
        "completion": metrics.get("completion_token_ids") or [],
        "logprobs": metrics.get("logprobs") or [],
        "reply": written(role, step["message"], own.get("reply_parts")),
        "policy": step["model_name"],
    }
    call: Call = built(Call, made)
    return call


def _own_step(
    step: Mapping[str, Any], result: Mapping[str, Any], tools: Mapping[str, Mapping[str, Any]]
) -> Step:
    own = dict(result["extra"][REST])
    tool = tools.get(result.get("source_call_id") or "")
    call = tool and {
        "name": tool["function_name"],
        "arguments": tool["arguments"],
        "id": own.pop("call_id", ""),
    }
    own["action"] = {"text": own.pop("text", step["message"]), "call": call}
    seen = observation_json(result["content"], own)
    reward = result["extra"]["reward"]
    own["transition"] = {**own["transition"], "observation": seen, "reward": reward}
    found: Step = built(Step, own)
    return found


# ── trajectories of other programs ───────────────────────────────────────────


def _foreign(
    document: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    number: int,
    reward: float | None,
) -> Episode:
    agent = document["agent"]
    graph, acted = MessageGraph(), list[Step]()
    conversation: list[Message] = []
    for position, step in enumerate(steps):
        if step["source"] != "agent" or step.get("is_copied_context"):
            conversation.append(text_message(speaker(step["source"]), _text(step["message"])))
            continue
        if step.get("llm_call_count") != 0:
            policy = step.get("model_name") or agent.get("model_name") or agent["name"]
            graph.add(_call(step, conversation, policy, graph))
            conversation.append(graph.calls[-1].reply)
        latest = len(graph.calls) - 1 if graph.calls else None
        actions, seen = _actions(step, len(acted), latest)
        acted += actions
        conversation += seen
        follows = steps[position + 1] if position + 1 < len(steps) else None
        if not actions:  # text to the user, who replies with the next step or not at all
            answered = follows is not None and follows["source"] == "user"
            seen_next = _text(follows["message"]) if follows is not None and answered else ""
            action = Action(_text(step["message"]))
            acted.append(made_step(len(acted), latest, action, seen_next))
    for other in document.get("subagent_trajectories") or ():
        _add_calls_of(other, graph)
    first = next((_text(step["message"]) for step in steps if step["source"] == "user"), None)
    success = reward is not None and reward >= 1
    outcome = Outcome.success() if success else Outcome.failure()
    totals = document.get("final_metrics") or {}
    episode = Episode(
        key=Key(f"atif/{agent['name']}", number),
        task=Task(
            id=str(document.get("session_id") or document.get("trajectory_id") or number),
            environment="atif",
            seed=0,
            split=Split.TEST,
            instruction=first or "",
        ),
        agent=agent["name"],
        observation=None if first is None else Observation(first),
        calls=tuple(graph.calls),
        steps=tuple(acted) if reward is None else judged(acted, reward, success),
        outcome=unjudged(NO_OUTCOME) if reward is None else outcome,
        usage=Usage(
            turns=len(acted),
            prompt_tokens=totals.get("total_prompt_tokens") or 0,
            sampled_tokens=totals.get("total_completion_tokens") or 0,
        ),
        labels={"agent_version": str(agent["version"]), "schema": document["schema_version"]},
    )
    return checked(episode)


def _call(
    step: Mapping[str, Any], conversation: Sequence[Message], policy: str, graph: MessageGraph
) -> Call:
    """Return the call of an agent step; it continues the last call if its tokens do."""
    metrics = step.get("metrics") or {}
    prompt = metrics.get("prompt_token_ids") or []
    parent, known, _ = graph.place(conversation, policy, "agent")
    before = [] if parent is None else graph.tokens(parent)
    if prompt and prompt[: len(before)] != before:
        parent, known, before = None, 0, []
    return Call(
        index=len(graph.calls),
        parent=parent,
        role="agent",
        messages=tuple(conversation[known:]),
        prompt=tuple(prompt[len(before) :]),
        reply=assistant(thoughts(step.get("reasoning_content") or "") + _text(step["message"])),
        completion=tuple(metrics.get("completion_token_ids") or ()),
        logprobs=tuple(metrics.get("logprobs") or ()),
        finish=Finish.STOP,
        policy=policy,
        version=0,
        computed_tokens=(metrics.get("prompt_tokens") or 0) - (metrics.get("cached_tokens") or 0),
    )


def _actions(
    step: Mapping[str, Any], index: int, call: int | None
) -> tuple[list[Step], list[Message]]:
    """Return the steps of an agent step, and their messages in its next prompt."""
    results = (step.get("observation") or {}).get("results", [])
    found: list[Step] = []
    for tool in step.get("tool_calls") or ():
        name = tool["tool_call_id"]
        made = ToolCall(tool["function_name"], tool["arguments"])
        seen = "\n".join(
            _text(r.get("content")) for r in results if r.get("source_call_id") == name
        )
        found.append(made_step(index + len(found), call, Action(str(made), made), seen))
    loose = [_text(r.get("content")) for r in results if not r.get("source_call_id")]
    if loose:
        action = Action(_text(step["message"]))
        found.append(made_step(index + len(found), call, action, "\n".join(loose)))
    return found, [text_message("tool", step.transition.observation.text) for step in found]


def _add_calls_of(document: Mapping[str, Any], graph: MessageGraph) -> None:
    """Add the calls of an embedded agent, with its name as role and its actions as text."""
    name = document["agent"]["name"]
    conversation: list[Message] = []
    for step in document["steps"]:
        if step["source"] != "agent" or step.get("llm_call_count") == 0:
            conversation.append(text_message(speaker(step["source"]), _text(step["message"])))
            continue
        policy = step.get("model_name") or document["agent"].get("model_name") or name
        parent, known, _ = graph.place(conversation, policy, name)
        reply = assistant(thoughts(step.get("reasoning_content") or "") + _text(step["message"]))
        new = tuple(conversation[known:])
        index = len(graph.calls)
        graph.add(Call(index, parent, name, new, (), reply, (), (), Finish.STOP, policy, 0))
        conversation += [reply, *_actions(step, 0, None)[1]]


def _text(content: JSON) -> str:
    """Return the text of a message; images and audio become their names."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [
        part["text"] if part["type"] == "text" else f"[{part['type']}: {part['source']['path']}]"
        for part in content
    ]
    return "\n".join(parts)


def _looks_right(file: Path) -> bool:
    return file.suffix in (".json", ".jsonl") and b'"schema_version"' in file.read_bytes()[:4096]


def _reward_beside(file: Path) -> float | None:
    """Return the reward of Harbor's verifier for a trajectory, if its result.json is nearby."""
    for folder in (file.parent, file.parent.parent):
        try:
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            return float(result["verifier_result"]["rewards"]["reward"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
