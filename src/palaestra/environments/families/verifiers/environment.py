"""Environments of verifiers, with their tasks, engines, users, tools and rewards.

Ids: `verifiers/MODULE`, an installed module that exports a taskset, as for `vf-eval MODULE`. For a
module that needs settings, subclass and override `settings`.
Source: verifiers (Brown et al. 2025, package `verifiers`, its `v1` interface, the only one in its
present versions).

verifiers' own rollout runs, and our agent takes the place of the package's `null` harness (chat and
tool calls; the package's default is a coding agent with a shell). A step is one reply of the agent:
text, or a call of one of the task's tools. The observation is the next message of the environment's
engine or user, or the result of a tool. When verifiers ends the rollout, the reward is the task's
weighted sum of rewards, computed as in verifiers, once; 1 or more is success. If the environment's
own limit of turns ended it, it is `truncated`. `info` then has each reward and metric.

Not supported, and refused with an error: several roles, judge models, agent programs, containers.
An error in the environment's code is a fault, never a score. `tasks.py` assigns rows to splits.
verifiers does not promise equal episodes for equal tasks. A subclass may promise it
(`deterministic`); then its environments can be moved and snapshotted by replay.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from verifiers import __version__ as VERSION

from palaestra.core.environment import Action, Capability, Observation, Spec, Transition, declared
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import Sampling, usual_action
from palaestra.core.task import ListedTasks, Task, TaskSet
from palaestra.core.tool import NotACall, Tool, checked
from palaestra.environments.base import Replayed, refused
from palaestra.environments.families.verifiers.turns import (
    OVER,
    Asked,
    Ended,
    final_transition,
    new_text,
)
from palaestra.environments.shared.tool_call_parsing import parsed_call

if TYPE_CHECKING:  # its import takes seconds
    import verifiers.v1 as vf

    from palaestra.environments.families.verifiers.link import Link
    from palaestra.environments.families.verifiers.tasks import Rows

LAST = 0.2  # probability that a random agent replies in text although it has tools
GUESSES = ("yes", "no", "0", "1", "2", "A", "B")


class Verifiers(Replayed, Sampling, id="verifiers", deterministic=False, free_text=True):
    """One agent in an environment of verifiers."""

    OVER = OVER
    package = VERSION

    def __init__(self, name: str = "") -> None:
        """Load the module; if its tasks have tools, begin one to read them.

        Raises:
            InputError: the module does not exist, or is not supported.
        """
        super().__init__(name)
        from palaestra.environments.families.verifiers.tasks import role_of

        self._settings = self.settings(name)
        self._role = role_of(name, self._settings)
        self._link: Link | None = None
        self._seen: list[dict[str, Any]] = []  # the conversation so far
        self._last = ""  # text of the last observation
        self.tools = self._read_tools()

    @classmethod
    def settings(cls, name: str) -> vf.EnvConfig:
        """Return the environment's settings; override it to choose others.

        Raises:
            InputError: the module does not exist, or has no default settings.
        """
        from palaestra.environments.families.verifiers.tasks import settings_of

        if not name:
            raise InputError(
                "The id 'verifiers/' names no module; write 'verifiers/MODULE', such as "
                "'verifiers/gsm8k'."
            )
        return settings_of(name)

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Return the module's spec; raise InputError if it does not exist or is not supported."""
        from palaestra.environments.families.verifiers.tasks import (
            alone,
            offers_tools,
            role_of,
        )

        settings, spec = cls.settings(name), declared(cls).named(name)
        most: int | None = getattr(settings, role_of(name, settings)).max_turns
        tools = offers_tools(settings)
        return replace(
            spec,
            capabilities=frozenset({Capability.SNAPSHOT} if spec.deterministic else ()),
            tools=tools,
            typical_turns=most or (2 if alone(settings) and not tools else 20),
        )

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        from palaestra.environments.families.verifiers.tasks import rows_of

        name = environment.partition("/")[2]
        if not name:
            return ListedTasks(environment)  # of the family itself, without a module
        return rows_of(cls.settings(name)).listed(environment)

    @property
    def instructions(self) -> str:
        if not self.tools:
            return "You are given a task. Your whole reply is the answer, or your next move."
        listed = "\n".join(tool.signature for tool in self.tools)
        return (
            'You are given a task. Reply with one tool call, as name(argument="value"), and see '
            "its result; a reply in words without a call is your answer, or your next move.\n"
            f"Tools:\n{listed}"
        )

    def _begin(self, task: Task) -> Observation:
        """Begin a rollout, and run it until the agent's turn.

        Raises:
            InputError: the task is not one of this environment's, or needs a container.
        """
        row = self._row(task)
        if self._link is None:
            self._link = self._start()
        self._seen = []
        return Observation(self._render(_first_turn(self._link.begin(row))))

    def _act(self, action: Action) -> Transition:
        try:
            text, call = self._parse(action)
        except NotACall as problem:
            return refused(str(problem))
        if self._link is None:
            raise RuntimeError("the rollout is gone; reset the environment")
        event = self._link.answer(text, call, len(self._past))
        if isinstance(event, Asked):
            return Transition(Observation(self._render(event)))
        return final_transition(event)

    def close(self) -> None:
        """Stop the environment and its servers."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a call that fits its schema, a common answer, or a word of the observation."""
        if self.tools and rng.random() > LAST:
            return usual_action(self, rng)
        return Action(rng.choice([*GUESSES, *re.findall(r"[\w.+-]+", self._last)]))

    # ── details ──────────────────────────────────────────────────────────────

    @cached_property
    def _rows(self) -> Rows:
        from palaestra.environments.families.verifiers.tasks import rows_of

        return rows_of(self._settings)

    def _row(self, task: Task) -> vf.Task[Any, Any, Any]:
        """Return the row of verifiers that a task refers to."""
        parameters = dict(task.parameters)
        stream = self._rows.streams.get(task.split)
        endless = stream is not None and not stream.taskset.bounded
        position = task.seed if endless else parameters.pop("position", None)
        right = stream is not None and isinstance(position, int) and not parameters
        if right and not endless:
            right = self._rows.belongs(task.split, position)
        row = stream.at(position) if right and stream is not None else None
        if row is None:
            raise InputError(
                f"'{task.id}' (of '{task.environment}') is not a task of {self.spec.id}; "
                "take one from that environment's own task set."
            )
        if row.data.image is not None:
            raise InputError(
                f"'{task.id}' of {self.spec.id} needs the container image '{row.data.image}', but "
                "tasks run in this process; take a task that needs no container."
            )
        return row

    def _read_tools(self) -> tuple[Tool, ...]:
        """Return the tools of the first task; all tasks must have the same."""
        if not self.spec.tools:
            return ()
        first = next((row for s in self._rows.streams.values() if (row := s.at(0))), None)
        if first is None:
            return ()
        self._link = self._start()
        try:
            asked = _first_turn(self._link.begin(first))
            self._link.leave()
        except BaseException:
            self.close()
            raise
        return asked.tools

    def _start(self) -> Link:
        from palaestra.environments.families.verifiers.link import Link

        return Link(self._settings, self._role)

    def _parse(self, action: Action) -> tuple[str, Any]:
        """Parse an action into its text and its call.

        Raises:
            NotACall: it is an invalid tool call, or it is empty.
        """
        if not self.tools:
            if action.call is not None:
                raise NotACall("There are no tools here; reply in words.")
            call = None
        elif action.call is not None:
            call = checked(action.call, self.tools)
        else:
            call = parsed_call(action.text, self.tools)
        try:
            action.text.encode()
            if call is not None:
                json.dumps(dict(call.arguments), ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError):
            raise NotACall("Use plain values and characters, as in JSON.") from None
        if call is None and not action.text.strip():
            raise NotACall("Say something.")
        has_text = action.call is not None and action.text != str(action.call)
        return (action.text if call is None or has_text else ""), call

    def _render(self, asked: Asked) -> str:
        """Render the messages since the agent's last reply.

        Raises:
            RuntimeError: the environment changed its tools.
        """
        if {tool.name for tool in asked.tools} != {tool.name for tool in self.tools}:
            raise RuntimeError("this task has other tools than the first one of its environment")
        self._last = new_text(asked.messages, self._seen) or "(nothing)"
        self._seen = asked.messages
        return self._last


def _first_turn(event: Asked | Ended) -> Asked:
    """Check that a rollout's first event is the agent's turn.

    Raises:
        RuntimeError: the environment fails, or never asks the agent.
    """
    if isinstance(event, Ended):
        final_transition(event)
        raise RuntimeError("the rollout ended before the agent was asked for anything")
    return event
