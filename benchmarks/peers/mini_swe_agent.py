"""mini-swe-agent: its agent with a scripted model and a trivial environment, in threads."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ["MSWEA_SILENT_STARTUP"] = "1"

from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import Submitted
from minisweagent.models.utils.actions_text import format_observation_messages
from pydantic import BaseModel


class Nothing(BaseModel):
    """No settings."""


class Scripted:
    """Always wants to tick."""

    config = Nothing()

    def query(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        extra = {"actions": [{"command": "tick"}], "cost": 0.0}
        return {"role": "assistant", "content": "tick", "extra": extra}

    def format_message(self, **message: Any) -> dict[str, Any]:
        return message

    def format_observation_messages(
        self,
        message: dict[str, Any],
        outputs: list[dict[str, Any]],
        template_vars: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        return format_observation_messages(
            outputs, observation_template="{{output.output}}", template_vars=template_vars
        )

    def get_template_vars(self, **variables: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


class Clockwork:
    """Lets time pass, so many times."""

    config = Nothing()

    def __init__(self, turns: int) -> None:
        self.left = turns

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        self.left -= 1
        if self.left == 0:
            extra = {"exit_status": "Submitted", "submission": "done"}
            raise Submitted({"role": "exit", "content": "done", "extra": extra})
        return {"output": "ok", "returncode": 0, "exception_info": ""}

    def get_template_vars(self, **variables: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


def live(turns: int) -> int:
    templates = {"system_template": "Tick.", "instance_template": "{{task}}"}
    agent = DefaultAgent(Scripted(), Clockwork(turns), **templates)
    agent.run("Go on.")
    return int(agent.n_calls)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run `sessions` of `turns` turns in ten threads; the seconds, and those in one thread."""
    sessions, turns = request["sessions"], request["turns"]
    seconds = {}
    for threads in (10, 1):
        with ThreadPoolExecutor(threads) as pool:
            started = time.perf_counter()
            lived = list(pool.map(live, [turns] * sessions))
            seconds[threads] = time.perf_counter() - started
        assert lived == [turns] * sessions, lived
    return {"seconds": seconds[10], "one_by_one": seconds[1]}
