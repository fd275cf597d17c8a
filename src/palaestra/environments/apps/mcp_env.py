"""Any MCP server as an environment: its tools are the actions, a check is the verdict.

Ids: `mcp/NAME` for a description that an installed package brings along (entry points of the group
`palaestra.mcp`: the path of a file, or a `Description`), `mcp/./file.toml` for one's own; what it
says is in `mcp_description.py`. Python's way is a subclass that overrides `describe`.
Source: Model Context Protocol (package `mcp`, version 2), over stdio or streamable HTTP.

A tool that runs and fails was understood: its words are the observation, and `valid` stays True. A
call that does not fit the tool's schema, or that the protocol refuses, is not valid. A server that
dies, is mute for longer than `timeout`, or speaks rubbish is an `EnvironmentFault`; the next reset
starts another one. Words without a call end the task, and then its check decides: the reward is
what it says, and 1 or more is success. A description's `deterministic` promises that replaying
calls gives equal answers; only then can a world be moved, brought back and snapshotted.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from palaestra.core.environment import Action, Capability, Observation, Transition
from palaestra.core.errors import EnvironmentFault, InputError, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool
from palaestra.environments.apps.mcp_description import (
    Assignment,
    Description,
    Made,
    Use,
    Wanted,
    load,
)
from palaestra.environments.apps.mcp_link import Link, Reply
from palaestra.environments.apps.speech import call_or_last_word
from palaestra.environments.described import DescribedWorld

HOW = (
    'Reply with one tool call and nothing else, as name(argument="value"), and see its result. '
    "When all is done, reply in words without a call: that ends the task.\nTools:\n"
)
LAST = 0.1  # how often a random agent has the last word


class McpEnvironment(DescribedWorld[Description, Link]):
    """An MCP server with tasks."""

    family = "mcp"
    title = "MCP"
    free_text = True

    def __init__(self, name: str = "") -> None:
        """Start or reach the server, to learn its tools.

        Raises:
            InputError: there is no such description, or it does not fit its server.
            EnvironmentFault: the server does not start.
        """
        super().__init__(name)
        described = self._description
        if any(task.solution for task in described.tasks):
            self.capabilities |= {Capability.ORACLE}  # type: ignore[misc]
        self._assignment: Assignment | None = None
        self._made: list[Made] = []
        link = self._link = self._reached()
        self._fresh = True  # nobody has called anything yet
        self._own_words = link.instructions
        try:
            self.tools = _offered(described, link.tools)
        except InputError:
            self.close()
            raise

    @classmethod
    def load(cls, file: Path) -> Description:
        return load(file)

    def link(self) -> Link:
        return Link(self._description)

    @property
    def instructions(self) -> str:
        said = (self._description.instructions or self._own_words).strip()
        return f"{said}\n{HOW}".lstrip() + "\n".join(tool.signature for tool in self.tools)

    def reset(self, task: Task) -> Observation:
        """Start a task: in a server started anew, or by the tool that resets.

        Raises:
            InputError: it is no task of this description.
            EnvironmentFault: the server does not start, or does not reset.
        """
        said = dict(task.parameters)
        assignment = self._description.find(said.pop("task", None))
        if assignment is None or said or assignment.split is not task.split:
            raise self._no_task(task)
        self._task = None
        tool = self._description.reset
        if self._link is None or not (tool or self._fresh):
            self.close()
            self._link, self._fresh = self._reached(), True
        if tool and (reply := self._called(tool, assignment.parameters)).failed:
            raise EnvironmentFault("reset", f"{self._id}: {tool}: {reply.text}")
        self._task, self._assignment = task, assignment
        self._made, self._past, self._over = [], [], False
        return Observation(assignment.instruction)

    def step(self, action: Action) -> Transition:
        assignment = self._assigned()
        if self._over:
            return _refused("The task is over.")
        try:
            call = call_or_last_word(action, self.tools)
        except NotACall as why:
            return _refused(str(why))
        if call is None:
            return self._ended(assignment, action)
        arguments = dict(call.arguments)
        reply = self._called(call.name, arguments)
        if reply.refused:
            return _refused(reply.text)
        self._made.append(Made(call.name, arguments, reply.text, reply.data, reply.failed))
        self._past.append(action)
        return Transition(Observation(reply.text))

    def oracle(self) -> list[Action]:
        """What is left of the task's solution, if everything so far was its beginning."""
        if Capability.ORACLE not in self.capabilities:
            super().oracle()
        solution = self._assigned().solution
        done = [(made.name, made.arguments) for made in self._made]
        begun = [(use.tool, use.arguments) for use in solution[: len(done)] if isinstance(use, Use)]
        if self._over or not solution or done != begun:
            return []
        rest = [_phrased(part) for part in solution[len(done) :]]
        return rest if isinstance(solution[-1], str) else [*rest, Action("Done.")]

    def sample_action(self, dice: random.Random) -> Action:
        """A call that fits its schema, and at times the last word."""
        return Action("Done.") if dice.random() < LAST else super().sample_action(dice)

    # ── details ──────────────────────────────────────────────────────────────

    def _ended(self, assignment: Assignment, action: Action) -> Transition:
        check = assignment.check
        if isinstance(check, Wanted):
            reply = self._called(check.tool, check.arguments)
            verdict = float(not reply.failed and check.met_by(reply.text, reply.data))
        else:
            verdict = float(check(assignment, tuple(self._made), action.text))
        self._past.append(action)
        self._over = True
        return Transition(
            Observation("The task is over."),
            reward=verdict,
            terminated=True,
            success=verdict >= 1,
        )

    def _called(self, tool: str, arguments: dict[str, Any]) -> Reply:
        self._fresh = False
        return self._asked(lambda link: link.call(tool, arguments))

    def _assigned(self) -> Assignment:
        self._running()
        assert self._assignment is not None
        return self._assignment


def _offered(described: Description, found: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools for the agent; raises InputError where the description names others."""
    known = {tool.name: tool for tool in found}
    offered = described.tools or tuple(name for name in known if name != described.reset)
    checks = [task.check.tool for task in described.tasks if isinstance(task.check, Wanted)]
    for name in (*offered, *checks, *([described.reset] if described.reset else [])):
        if name not in known:
            raise UnknownName("tool of this MCP server", name, known)
    return tuple(known[name] for name in offered)


def _phrased(part: Use | str) -> Action:
    if isinstance(part, str):
        return Action(part)
    call = ToolCall(part.tool, part.arguments)
    return Action(str(call), call)


def _refused(words: str) -> Transition:
    return Transition(Observation(words), valid=False)
