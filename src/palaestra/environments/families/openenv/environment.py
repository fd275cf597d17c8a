"""Any OpenEnv server as an environment: each environment is one session with it.

Ids: `openenv/NAME` for a description in an installed package (entry points of the group
`palaestra.openenv`: the path of a file, or a `Description`), `openenv/./file.toml` for a file of
your own. `description.py` documents the format. To describe in Python, subclass and override
`describe`.
Source: OpenEnv (Meta and Hugging Face 2025, package `openenv`), by its websocket protocol.

A reset sends the task's seed and parameters to the server. A missing reward counts as 0. "Done"
ends the task, and the description's `solved` decides on success. The protocol cannot report a step
limit, so every end is `terminated`. An action that the server's model rejects is not valid, and the
server's error text is the observation. A server that fails at a step, dies, does not answer within
`timeout`, or violates the protocol raises `EnvironmentFault`; the next reset starts it again. A
description's `deterministic` promises that equal seeds and actions give equal observations; only
then can an environment be moved, restored and snapshotted.
"""

from __future__ import annotations

import random
from dataclasses import replace

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.rare_capabilities import Sampling
from palaestra.core.task import Task
from palaestra.core.tool import NotACall
from palaestra.environments.base import refused
from palaestra.environments.families.openenv.description import Description
from palaestra.environments.families.openenv.link import Link, Refused, Seen
from palaestra.environments.families.openenv.words import (
    action_parser,
    parse_tools,
    render,
    tool_refused,
)
from palaestra.environments.shared.described_server import DescribedEnvironment


class OpenEnv(DescribedEnvironment[Description, Link], Sampling, id="openenv"):
    """A session with an OpenEnv server."""

    family = "openenv"
    title = "OpenEnv"
    form = Description

    def __init__(self, name: str = "") -> None:
        """Start or reach the server and read its action model.

        Raises:
            InputError: the description does not exist, or does not fit its server.
            EnvironmentFault: the server does not start.
        """
        super().__init__(name)
        described = self._description
        self._total = 0.0  # sum of the rewards since the reset
        self._last = ""  # text of the last observation
        link = self._link = self._reached()
        try:
            listed = link.step({"type": "list_tools"}) if described.action.mcp else None
            tools = parse_tools(listed.observation) if listed else ()
            self._parser = action_parser(described.action, link.schema(), tools)
        except Refused as problem:
            self.close()
            raise InputError(
                f"The server of {self.spec.id} lists no tools ({problem}); "
                "use text, words or tool in the description's 'action' instead of mcp."
            ) from None
        except BaseException:
            self.close()
            raise
        self.tools = self._parser.tools
        # Only the server's schema tells whether it accepts any text.
        self.spec = replace(self.spec, free_text=self._parser.free)

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        action = cls.describe(name).action
        tools = action.mcp or bool(action.tool)
        return replace(super().spec_of(name), free_text=bool(action.text), tools=tools)

    def link(self) -> Link:
        return Link(self._description)

    @property
    def instructions(self) -> str:
        return f"{self._description.instructions.strip()}\n{self._parser.how}".lstrip()

    def _begin(self, task: Task) -> Observation:
        """Begin a task in the server's session; restart the server if it is gone.

        Raises:
            InputError: the task is not one of this description's.
            EnvironmentFault: the server does not start, or does not reset.
        """
        given, parameters, instruction = dict(task.parameters), {}, ""
        if self._description.tasks:
            assignment = self._description.find(given.pop("task", None))
            if assignment is None or given or assignment.split is not task.split:
                raise self._no_task(task)
            parameters, instruction = assignment.parameters, assignment.instruction.strip()
        elif given:
            raise self._no_task(task)
        if self._link is None:
            self._link = self._reached()
        seen = self._asked(lambda link: link.reset({"seed": task.seed, **parameters}))
        if seen.done:
            raise EnvironmentFault("reset", f"{self.spec.id}: done before anything was done")
        self._total = 0.0
        self._last = self._render(seen)
        return Observation(f"{instruction}\n{self._last}".lstrip())

    def _act(self, action: Action) -> Transition:
        try:
            payload = self._parser.payload(action)
            seen = self._asked(lambda link: link.step(payload))
        except (NotACall, Refused) as problem:
            return refused(str(problem))
        text = self._render(seen)
        if self._description.action.mcp and tool_refused(seen.observation):
            return refused(text)
        self._last = text
        self._total += seen.reward
        solved = self._description.solved
        met = solved.met_by(seen.observation, seen.reward, self._total)
        over = seen.done or (met and solved.ends)
        return Transition(
            Observation(text),
            reward=seen.reward,
            terminated=over,
            success=over and met,
        )

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a call, a listed action, a number, or a word of the last observation."""
        return self._parser.sample(rng, self._last)

    # ── details ──────────────────────────────────────────────────────────────

    def _render(self, seen: Seen) -> str:
        try:
            return render(self._description.observation, seen.observation)
        except (LookupError, AttributeError, ValueError) as error:
            raise InputError(
                f"The observation template of {self.spec.id} does not fit its observations "
                f"({error!r}); they have: {', '.join(seen.observation) or 'nothing'}."
            ) from None
