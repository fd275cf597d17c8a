"""Any MCP server as an environment: its tools are the actions, a check gives the reward.

Ids: `mcp/NAME` for a description in an installed package (entry points of the group
`palaestra.mcp`: the path of a file, or a `Description`), `mcp/./file.toml` for a file of your own.
`description.py` documents the format. To describe in Python, subclass and override `describe`.
Source: Model Context Protocol (package `mcp`, version 2), over stdio or streamable HTTP.

If a tool runs and fails, its error text is the observation and `valid` stays True. A call that
does not fit the tool's schema, or that the protocol refuses, is not valid. A server that dies,
does not answer within `timeout`, or violates the protocol raises `EnvironmentFault`; the next reset
starts another one. A reply without a call ends the task, and then its check decides: the reward is
what the check returns, and 1 or more is success. A description's `deterministic` promises that
replayed calls give equal results; only then can an environment be moved, restored and snapshotted.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from palaestra.core.environment import Action, Capability, Observation, Spec, Transition
from palaestra.core.errors import EnvironmentFault, InputError, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import Sampling, usual_action
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool
from palaestra.environments.base import refused
from palaestra.environments.families.mcp.description import (
    Assignment,
    Description,
    Made,
    Use,
    Wanted,
)
from palaestra.environments.families.mcp.link import Link, Reply
from palaestra.environments.shared.described_server import DescribedEnvironment
from palaestra.environments.shared.tool_call_parsing import call_or_final_reply

HOW = (
    'Reply with one tool call and nothing else, as name(argument="value"), and see its result. '
    "When all is done, reply in words without a call: that ends the task.\nTools:\n"
)
LAST = 0.1  # probability that a random agent ends the task


class McpEnvironment(
    DescribedEnvironment[Description, Link], Sampling, id="mcp", free_text=True, tools=True
):
    """An MCP server with tasks."""

    family = "mcp"
    title = "MCP"
    form = Description

    def __init__(self, name: str = "") -> None:
        """Start or reach the server and read its tools.

        Raises:
            InputError: the description does not exist, or does not fit its server.
            EnvironmentFault: the server does not start.
        """
        super().__init__(name)
        self._assignment: Assignment | None = None
        self._made: list[Made] = []
        link = self._link = self._reached()
        self._fresh = True  # no tool has been called yet
        self._server_instructions = link.instructions
        try:
            self.tools = _offered(self._description, link.tools)
        except InputError:
            self.close()
            raise

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = super().spec_of(name)
        solved = any(task.solution for task in cls.describe(name).tasks)
        has = spec.capabilities | ({Capability.ORACLE} if solved else set())
        return replace(spec, capabilities=has)

    def link(self) -> Link:
        return Link(self._description)

    @property
    def instructions(self) -> str:
        intro = (self._description.instructions or self._server_instructions).strip()
        return f"{intro}\n{HOW}".lstrip() + "\n".join(tool.signature for tool in self.tools)

    def _begin(self, task: Task) -> Observation:
        """Start a task in a restarted server, or by the tool that resets.

        Raises:
            InputError: the task is not one of this description's.
            EnvironmentFault: the server does not start, or does not reset.
        """
        parameters = dict(task.parameters)
        assignment = self._description.find(parameters.pop("task", None))
        if assignment is None or parameters or assignment.split is not task.split:
            raise self._no_task(task)
        tool = self._description.reset
        if self._link is None or not (tool or self._fresh):
            self.close()
            self._link, self._fresh = self._reached(), True
        if tool and (reply := self._call(tool, assignment.parameters)).failed:
            raise EnvironmentFault("reset", f"{self.spec.id}: {tool}: {reply.text}")
        self._assignment, self._made = assignment, []
        return Observation(assignment.instruction)

    def _act(self, action: Action) -> Transition:
        assignment = self._assigned()
        try:
            call = call_or_final_reply(action, self.tools)
        except NotACall as problem:
            return refused(str(problem))
        if call is None:
            return self._check(assignment, action)
        arguments = dict(call.arguments)
        reply = self._call(call.name, arguments)
        if reply.refused:
            return refused(reply.text)
        self._made.append(Made(call.name, arguments, reply.text, reply.data, reply.failed))
        return Transition(Observation(reply.text))

    def oracle(self) -> list[Action]:
        """Return the rest of the task's solution, or [] if the calls so far deviate from it."""
        if Capability.ORACLE not in self.spec.capabilities:
            self._undeclared(Capability.ORACLE)
        solution = self._assigned().solution
        done = [(made.name, made.arguments) for made in self._made]
        begun = [(use.tool, use.arguments) for use in solution[: len(done)] if isinstance(use, Use)]
        if self._over or not solution or done != begun:
            return []
        rest = [_action(part) for part in solution[len(done) :]]
        return rest if isinstance(solution[-1], str) else [*rest, Action("Done.")]

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a call that fits its schema, or with probability `LAST` a reply that ends."""
        return Action("Done.") if rng.random() < LAST else usual_action(self, rng)

    # ── details ──────────────────────────────────────────────────────────────

    def _check(self, assignment: Assignment, action: Action) -> Transition:
        """End the task and let its check decide."""
        check = assignment.check
        if isinstance(check, Wanted):
            reply = self._call(check.tool, check.arguments)
            verdict = float(not reply.failed and check.met_by(reply.text, reply.data))
        else:
            verdict = float(check(assignment, tuple(self._made), action.text))
        return Transition(
            Observation("The task is over."),
            reward=verdict,
            terminated=True,
            success=verdict >= 1,
        )

    def _call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        self._fresh = False
        return self._asked(lambda link: link.call(tool, arguments))

    def _assigned(self) -> Assignment:
        self._current()
        assert self._assignment is not None
        return self._assignment


def _offered(described: Description, found: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Return the agent's tools; raise UnknownName if the description names a missing one."""
    known = {tool.name: tool for tool in found}
    offered = described.tools or tuple(name for name in known if name != described.reset)
    checks = [task.check.tool for task in described.tasks if isinstance(task.check, Wanted)]
    for name in (*offered, *checks, *([described.reset] if described.reset else [])):
        if name not in known:
            raise UnknownName("tool of this MCP server", name, known)
    return tuple(known[name] for name in offered)


def _action(part: Use | str) -> Action:
    if isinstance(part, str):
        return Action(part)
    call = ToolCall(part.tool, part.arguments)
    return Action(str(call), call)
