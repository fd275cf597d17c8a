"""Any OpenEnv server as an environment: its sessions are the worlds.

Ids: `openenv/NAME` for a description that an installed package brings along (entry points of the
group `palaestra.openenv`: the path of a file, or a `Description`), `openenv/./file.toml` for one's
own; what it says is in `openenv_description.py`. Python's way is a subclass that overrides
`describe`.
Source: OpenEnv (Meta and Hugging Face 2025, package `openenv`), by its websocket protocol.

A reset gives the server the task's seed and its parameters. A reward of nothing is 0. "Done" ends
the task, and what the description calls solved decides on success; a server has no word for a step
limit of its own, so its ends are all `terminated`. An action that the server's model refuses is
answered in the server's words, as not valid; a server that fails at a step, dies, is mute for
longer than `timeout`, or speaks rubbish is an `EnvironmentFault`, and the next reset starts it
again. A description's `deterministic` promises that equal seeds and actions give equal answers;
only then can a world be moved, brought back and snapshotted.
"""

from __future__ import annotations

import random
from pathlib import Path

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.task import Task
from palaestra.core.tool import NotACall
from palaestra.environments.described import DescribedWorld
from palaestra.environments.generic.openenv_description import Description, load
from palaestra.environments.generic.openenv_link import Link, Refused, Seen
from palaestra.environments.generic.openenv_words import told, tongue, tool_refused, tools_in


class OpenEnv(DescribedWorld[Description, Link]):
    """A session with an OpenEnv server."""

    family = "openenv"
    title = "OpenEnv"

    def __init__(self, name: str = "") -> None:
        """Start or reach the server, to learn its actions.

        Raises:
            InputError: there is no such description, or it does not fit its server.
            EnvironmentFault: the server does not start.
        """
        super().__init__(name)
        described = self._description
        self._total = 0.0  # of the rewards since the reset
        self._last = ""  # what was seen
        link = self._link = self._reached()
        try:
            listed = link.step({"type": "list_tools"}) if described.action.mcp else None
            tools = tools_in(listed.observation) if listed else ()
            self._tongue = tongue(described.action, link.schema(), tools)
        except Refused as why:
            self.close()
            raise InputError(f"The server of {self._id} lists no tools: {why}") from None
        except BaseException:
            self.close()
            raise
        self.tools = self._tongue.tools
        self.free_text = self._tongue.free  # type: ignore[misc]

    @classmethod
    def load(cls, file: Path) -> Description:
        return load(file)

    def link(self) -> Link:
        return Link(self._description)

    @property
    def instructions(self) -> str:
        return f"{self._description.instructions.strip()}\n{self._tongue.how}".lstrip()

    def reset(self, task: Task) -> Observation:
        """Begin a task in the server's session; a server that is gone is started again.

        Raises:
            InputError: it is no task of this description.
            EnvironmentFault: the server does not start, or does not reset.
        """
        said, parameters, instruction = dict(task.parameters), {}, ""
        if self._description.tasks:
            assignment = self._description.find(said.pop("task", None))
            if assignment is None or said or assignment.split is not task.split:
                raise self._no_task(task)
            parameters, instruction = assignment.parameters, assignment.instruction.strip()
        elif said:
            raise self._no_task(task)
        self._task = None
        if self._link is None:
            self._link = self._reached()
        seen = self._asked(lambda link: link.reset({"seed": task.seed, **parameters}))
        if seen.done:
            raise EnvironmentFault("reset", f"{self._id}: done before anything was done")
        self._task, self._past, self._over, self._total = task, [], False, 0.0
        self._last = self._told(seen)
        return Observation(f"{instruction}\n{self._last}".lstrip())

    def step(self, action: Action) -> Transition:
        self._running()
        if self._over:
            return _refused("The task is over.")
        try:
            payload = self._tongue.payload(action)
            seen = self._asked(lambda link: link.step(payload))
        except (NotACall, Refused) as why:
            return _refused(str(why))
        words = self._told(seen)
        if self._description.action.mcp and tool_refused(seen.observation):
            return _refused(words)
        self._past.append(action)
        self._last = words
        self._total += seen.reward
        solved = self._description.solved
        met = solved.met_by(seen.observation, seen.reward, self._total)
        self._over = seen.done or (met and solved.ends)
        return Transition(
            Observation(words),
            reward=seen.reward,
            terminated=self._over,
            success=self._over and met,
        )

    def sample_action(self, dice: random.Random) -> Action:
        """A call, a listed action, a number, a sample, or a word of what was seen last."""
        return self._tongue.sample(dice, self._last)

    # ── details ──────────────────────────────────────────────────────────────

    def _told(self, seen: Seen) -> str:
        try:
            return told(self._description.observation, seen.observation)
        except (LookupError, AttributeError, ValueError) as error:
            raise InputError(
                f"The description of {self._id} tells observations by a template that does not fit "
                f"them ({error!r}); they have: {', '.join(seen.observation) or 'nothing'}."
            ) from None


def _refused(words: str) -> Transition:
    return Transition(Observation(words), valid=False)
