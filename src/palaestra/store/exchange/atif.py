"""The export of ATIF trajectories, the format of the Harbor project.

Source: the Agent Trajectory Interchange Format, RFC 0001 of Harbor, v1.7 (April 2026).
One trajectory per episode. Each message that a prompt adds is a step of the user or the
system. Each model call is a step of the agent with its token ids and log-probabilities; its
actions are the step's tool calls and observation. `atif_import.py` reads them back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from palaestra import __version__
from palaestra.core.episode import Episode, Step
from palaestra.core.errors import InputError
from palaestra.core.graph import Call, MessageGraph
from palaestra.store.codec import JSON
from palaestra.store.disk import replacing_file
from palaestra.store.exchange.messages import beside, beyond_text, shows, who_acted
from palaestra.store.exchange.plain_json import REST, head, plain, write_lines
from palaestra.store.header import events_in_order

VERSION = "ATIF-v1.7"
SOURCES = {"system": "system", "user": "user", "assistant": "agent", "tool": "user"}
"""The source of a message by its role; the role is stored as well where the source is ambiguous."""


def write_atif(path: Path, episodes: Iterable[Episode]) -> int:
    """Write trajectories: one per line of a .jsonl file, or one file per episode in a folder.

    Returns:
        the number of trajectories.

    Raises:
        InputError: the folder is missing, or cannot be written to.
        StorageFull: there is no space; earlier files are intact.
    """
    path = Path(path)
    documents = (trajectory(episode) for episode in episodes)
    if path.suffix == ".jsonl":
        return write_lines(path, documents)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be made: {error}. Give another path.") from error
    count = 0
    for count, document in enumerate(documents, 1):
        name = re.sub(r"[^\w.-]+", "_", document["trajectory_id"]) or "episode"
        with replacing_file(path / f"{count:05d}-{name[:80]}.json") as partial:
            partial.write_bytes(json.dumps(document, indent=1).encode() + b"\n")
    return count


def trajectory(episode: Episode) -> dict[str, JSON]:
    """Return an episode as one ATIF document."""
    steps = _Steps(episode)
    for event in events_in_order(episode):
        if isinstance(event, Call):
            steps.add_call(event)
        else:
            steps.add_step(event)
    if not steps.found:  # ATIF requires at least one step
        steps.add("user", episode.observation.text if episode.observation else "", nothing=True)
    policies = [call.policy for call in episode.calls]
    model = {"model_name": max(policies, key=policies.count)} if policies else {}
    return {
        "schema_version": VERSION,
        "session_id": str(episode.key),
        "trajectory_id": str(episode.key),
        "agent": {"name": episode.agent, "version": f"palaestra {__version__}", **model},
        "steps": steps.found,
        "final_metrics": {
            "total_prompt_tokens": steps.read,
            "total_completion_tokens": sum(len(call.completion) for call in episode.calls),
            "total_steps": len(steps.found),
            "extra": _result(episode),
        },
        "extra": {REST: head(episode)},
    }


def _result(episode: Episode) -> dict[str, JSON]:
    """Return reward and outcome, or the returns of several players."""
    if returns := episode.results:
        return {"returns": dict(returns)}
    return {"reward": float(episode.reward), "outcome": str(episode.outcome)}


class _Steps:
    """The builder of a trajectory's steps."""

    def __init__(self, episode: Episode) -> None:
        self.found: list[dict[str, Any]] = []
        self.read = 0  # tokens of all prompts
        self._graph = MessageGraph()
        self._calls: dict[int, dict[str, Any]] = {}  # the step of each call
        self._acted: dict[int, list[Step]] = {}  # the actions of each call

    def add(self, source: str, message: str, **rest: JSON) -> dict[str, Any]:
        step: dict[str, Any] = {
            "step_id": len(self.found) + 1,
            "source": source,
            "message": message,
        }
        if rest:
            step["extra"] = {REST: rest}
        self.found.append(step)
        return step

    def add_call(self, call: Call) -> None:
        repeated = self._repeated_role(call)
        for message in () if repeated else call.messages:
            source = SOURCES[message.role]
            extra: dict[str, JSON] = {} if message.role == source else {"role": message.role}
            if (own := beside(message)) is not None:
                extra["parts"] = own
            step = self.add(source, message.text, **extra)
            if source == "agent":
                step["llm_call_count"] = 0  # part of a prompt, not a model call
        known = [] if call.parent is None else self._graph.tokens(call.parent)
        rest = plain(call, "messages", "prompt", "completion", "logprobs", "reply", "policy")
        rest |= {"heard": repeated} if repeated else {}
        if call.reply.role != "assistant":
            rest["reply_role"] = call.reply.role
        if (own := beside(call.reply)) is not None:
            rest["reply_parts"] = own
        step = self.add("agent", call.reply.text, call=rest)
        if call.reply.reasoning:
            step["reasoning_content"] = call.reply.reasoning
        step |= {"model_name": call.policy, "llm_call_count": 1}
        if metrics := self._metrics(call, known):
            step["metrics"] = metrics
        self._graph.add(call)
        self._calls[call.index] = step

    def add_step(self, step: Step) -> None:
        """Add an action to the step of its call if that is the last one, else as its own step."""
        chosen_by = None if step.call is None else self._calls.get(step.call)
        last = chosen_by is not None and chosen_by is self.found[-1]
        holder = (
            chosen_by if last and chosen_by is not None else self.add("agent", step.action.text)
        )
        if not last:
            holder["llm_call_count"] = 0
        rest = {**plain(step, "action"), **beyond_text(step.transition.observation)}
        del rest["transition"]["observation"], rest["transition"]["reward"]
        if step.action.text != holder["message"]:
            rest["text"] = step.action.text
        result: dict[str, Any] = {"content": step.transition.observation.text}
        if step.action.call is not None:
            calls = holder.setdefault("tool_calls", [])
            name = f"call_{holder['step_id']}_{len(calls) + 1}"
            result = {"source_call_id": name, **result}
            calls.append(
                {
                    "tool_call_id": name,
                    "function_name": step.action.call.name,
                    "arguments": plain(step.action.call)["arguments"],
                }
            )
            if step.action.call.id:
                rest["call_id"] = step.action.call.id
        result["extra"] = {"reward": step.transition.reward, **who_acted(step), REST: rest}
        holder.setdefault("observation", {"results": []})["results"].append(result)
        if last and step.call is not None:
            self._acted.setdefault(step.call, []).append(step)

    def _repeated_role(self, call: Call) -> str | None:
        """Return the role in which a prompt repeats the observation, if it adds nothing else."""
        acted = self._acted.get(call.parent, []) if call.parent is not None else []
        if len(acted) != 1 or len(call.messages) != 1:
            return None
        message = call.messages[0]
        same = shows(message, acted[0].transition.observation)
        return message.role if same and self.found[-1] is self._calls[acted[0].call or 0] else None

    def _metrics(self, call: Call, known: list[int]) -> dict[str, JSON]:
        if not (call.prompt or call.completion or call.logprobs):
            return {}
        prompt = [*known, *call.prompt] if call.prompt else []
        self.read += len(prompt)
        found: dict[str, JSON] = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(call.completion),
        }
        if 0 < call.computed_tokens <= len(prompt):
            found["cached_tokens"] = len(prompt) - call.computed_tokens
        for name, values in (
            ("prompt_token_ids", prompt),
            ("completion_token_ids", call.completion),
            ("logprobs", call.logprobs),
        ):
            if values:
                found[name] = list(values)
        return found
