"""Environments of verifiers: their tasks, their engines and users, their tools and rewards.

Ids: `verifiers/MODULE`, an installed module that exports a taskset, as `vf-eval MODULE` has it.
One that needs settings is given them by a subclass that overrides `settings`.
Source: verifiers (Brown et al. 2025, package `verifiers`, its `v1` interface, the only one that
its present versions have).

verifiers' own rollout runs, with a seat for our agent where the package's `null` harness would
sit (by chat and tool calls; its default is a coding agent with a shell). A step is one reply of
the agent: words, or a call of one of the tools that the task serves. What the environment's engine
or user says next, or what a tool gives, is the observation. When verifiers ends the rollout, its
task's weighted rewards, added up as verifiers does, are the reward, once; 1 or more is success, a
bound of the environment's own on turns is `truncated`. `info` then has each reward and metric.

Not played, each refused in a sentence: several roles, judge models, agent programs, containers.
What goes wrong in the environment's code is a fault, never a score. How the splits get their
rows is in `verifiers_tasks.py`. verifiers promises no equal episodes for equal tasks; a subclass
may (`deterministic`), and then its worlds can be moved and snapshotted, by playing again.
"""

from __future__ import annotations

import json
import random
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from verifiers import __version__ as VERSION

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import ListedTasks, Task, TaskSet
from palaestra.core.tool import NotACall, Tool, checked
from palaestra.environments.apps.past import read, written
from palaestra.environments.apps.speech import heard
from palaestra.environments.generic.verifiers_turns import OVER, Asked, Ended, conversation, scored
from palaestra.environments.snapshots import opened, sealed

if TYPE_CHECKING:  # its import takes seconds
    import verifiers.v1 as vf

    from palaestra.environments.generic.verifiers_link import Link
    from palaestra.environments.generic.verifiers_tasks import Rows

LAST = 0.2  # how often a random agent says something where it could call a tool
GUESSES = ("yes", "no", "0", "1", "2", "A", "B")


class Verifiers(Environment):
    """One agent in an environment of verifiers."""

    deterministic = False
    free_text = True

    def __init__(self, name: str = "") -> None:
        """Look at the module; where its tasks have tools, begin one to learn them.

        Raises:
            InputError: there is no such module, or it cannot be played here.
        """
        super().__init__(name)
        from palaestra.environments.generic.verifiers_tasks import alone, role_of

        has = {Capability.SNAPSHOT} if self.deterministic else set()
        self.capabilities = frozenset(has)  # type: ignore[misc]
        self._settings = self.settings(name)
        self._role = role_of(name, self._settings)
        self._alone = alone(self._settings)
        self._link: Link | None = None
        self._task: Task | None = None
        self._past: list[Action] = []  # that were understood, since the reset
        self._seen: list[dict[str, Any]] = []  # the conversation so far
        self._told = ""  # what was seen last
        self._over = False
        self.tools = self._served()

    @classmethod
    def settings(cls, name: str) -> vf.EnvConfig:
        """The environment's settings; override it to choose others.

        Raises:
            InputError: there is no such module, or it has no usual settings.
        """
        from palaestra.environments.generic.verifiers_tasks import settings_of

        if not name:
            raise InputError(
                "A verifiers environment is named by its module: 'verifiers/MODULE', such as "
                "'verifiers/gsm8k'."
            )
        return settings_of(name)

    @classmethod
    def check_name(cls, name: str) -> None:
        """Raise InputError unless there is such a module, and it can be played."""
        from palaestra.environments.generic.verifiers_tasks import role_of

        role_of(name, cls.settings(name))

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        from palaestra.environments.generic.verifiers_tasks import rows_of

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

    @property
    def typical_turns(self) -> int:
        most: int | None = getattr(self._settings, self._role).max_turns
        return most or (2 if self._alone and not self.tools else 20)

    def reset(self, task: Task) -> Observation:
        """Begin a rollout, and play it until it is the agent's turn.

        Raises:
            InputError: it is no task of this environment, or needs a container.
        """
        chosen = self._chosen(task)
        self._task = None
        if self._link is None:
            self._link = self._reached()
        self._seen, self._past, self._over = [], [], False
        asked = _at_first(self._link.begin(chosen))
        told = self._heard(asked)
        self._task = task
        return Observation(told)

    def step(self, action: Action) -> Transition:
        self._running()
        if self._over:
            return _refused(OVER)
        try:
            text, call = self._said(action)
        except NotACall as why:
            return _refused(str(why))
        if self._link is None:
            raise RuntimeError("the rollout is gone; reset the world")
        event = self._link.answer(text, call, len(self._past))
        self._past.append(action)
        if isinstance(event, Asked):
            return Transition(Observation(self._heard(event)))
        self._over = True
        return scored(event)

    def close(self) -> None:
        """Take the environment and its servers down."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def snapshot(self) -> bytes:
        """The task and what was said, where a subclass promises equal answers."""
        if Capability.SNAPSHOT not in self.capabilities:
            return super().snapshot()
        return sealed(self._id, VERSION, written(self._running(), self._past))

    def restore(self, snapshot: bytes) -> None:
        """Play it again; raises InputError if it is another world's or version's."""
        if Capability.SNAPSHOT not in self.capabilities:
            super().restore(snapshot)
        task, actions = read(opened(snapshot, self._id, VERSION))
        self.reset(task)
        for action in actions:
            self.step(action)

    def sample_action(self, dice: random.Random) -> Action:
        """A call that fits its schema, or a common answer or a word of what was seen last."""
        if self.tools and dice.random() > LAST:
            return super().sample_action(dice)
        return Action(dice.choice([*GUESSES, *re.findall(r"[\w.+-]+", self._told)]))

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _id(self) -> str:
        return f"verifiers/{quote(self.name)}"

    @cached_property
    def _rows(self) -> Rows:
        from palaestra.environments.generic.verifiers_tasks import rows_of

        return rows_of(self._settings)

    def _chosen(self, task: Task) -> vf.Task[Any, Any, Any]:
        """The row that a task stands for."""
        said = dict(task.parameters)
        stream = self._rows.streams.get(task.split)
        endless = stream is not None and not stream.taskset.bounded
        position = task.seed if endless else said.pop("position", None)
        right = stream is not None and isinstance(position, int) and not said
        if right and not endless:
            right = self._rows.belongs(task.split, position)
        row = stream.at(position) if right and stream is not None else None
        if row is None:
            raise InputError(
                f"'{task.id}' (of '{task.environment}') is no task of {self._id}; "
                "take one of that environment's own task set."
            )
        if row.data.image is not None:
            raise InputError(
                f"'{task.id}' of {self._id} needs the container image '{row.data.image}', and is "
                "played in this process here; take a task that needs none."
            )
        return row

    def _served(self) -> tuple[Tool, ...]:
        """The tools of the first task, which all must have."""
        taskset = next(iter(self._rows.streams.values())).taskset
        settings = self._settings.taskset
        if not (taskset.toolsets(settings) or taskset.task_type().toolsets(settings.task)):
            return ()
        first = next((row for s in self._rows.streams.values() if (row := s.at(0))), None)
        if first is None:
            return ()
        self._link = self._reached()
        try:
            asked = _at_first(self._link.begin(first))
            self._link.leave()
        except BaseException:
            self.close()
            raise
        return asked.tools

    def _reached(self) -> Link:
        from palaestra.environments.generic.verifiers_link import Link

        return Link(self._settings, self._role)

    def _said(self, action: Action) -> tuple[str, Any]:
        """The words and the call of an action.

        Raises:
            NotACall: it tries to call a tool, and cannot be followed, or it says nothing.
        """
        if not self.tools:
            if action.call is not None:
                raise NotACall("There are no tools here; reply in words.")
            call = None
        elif action.call is not None:
            call = checked(action.call, self.tools)
        else:
            call = heard(action.text, self.tools)
        try:
            action.text.encode()
            if call is not None:
                json.dumps(dict(call.arguments), ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError):
            raise NotACall("Use plain values and characters, as in JSON.") from None
        if call is None and not action.text.strip():
            raise NotACall("Say something.")
        beside = action.call is not None and action.text != str(action.call)
        return (action.text if call is None or beside else ""), call

    def _heard(self, asked: Asked) -> str:
        """What the agent is shown: what was said since its last reply.

        Raises:
            RuntimeError: the environment changed its tools.
        """
        if {tool.name for tool in asked.tools} != {tool.name for tool in self.tools}:
            raise RuntimeError("this task has other tools than the first one of its environment")
        self._told = conversation(asked.messages, self._seen) or "(nothing)"
        self._seen = asked.messages
        return self._told

    def _running(self) -> Task:
        if self._task is None:
            raise InputError("This verifiers world has no task yet; call reset with one first.")
        return self._task


def _at_first(event: Asked | Ended) -> Asked:
    """The agent's first turn.

    Raises:
        RuntimeError: the environment fails, or never asks the agent.
    """
    if isinstance(event, Ended):
        scored(event)
        raise RuntimeError("the rollout ended before the agent was asked for anything")
    return event


def _refused(words: str) -> Transition:
    return Transition(Observation(words), valid=False)
