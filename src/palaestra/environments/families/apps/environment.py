"""Apps: an assistant with a person's mail, contacts, calendar and bank.

Ids: `apps/easy`, `apps/medium`, `apps/hard`: one, two or four goals in a task. With `:all` the
agent has every API as a tool, and with `:discover` it finds and reads them first; otherwise it has
the few that the task needs, and some that it does not. Tasks of `apps/easy-challenge` are about the
calendar, about which no others are; those of `apps/easy-new` about two apps that nobody has seen,
generated afresh for each task. Both exist for all levels and with all of these tools.

A split has small worlds of its own, so a world met in training is never met in a test. After LOOP's
AppWorld (Chen et al. 2025, Trivedi et al. 2024); ours: the apps, people and tasks, which are all
generated, and verdicts, which are derived (`composing/verifier.py`).

A task ends with `finish`. Its verdict stands in the last step's `info`: effect, wording, answer,
reply (whether the answer is right),
collateral (other rows that changed).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.message import ToolCall
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, checked, parse_call
from palaestra.environments.base import Adapter, hashed, refused, without_parameters
from palaestra.environments.families.apps.composing.composition import LEVELS
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.composing.resuming import rest_of
from palaestra.environments.families.apps.composing.verifier import Verdict
from palaestra.environments.families.apps.drawing import CHALLENGE, NEW, Drawn, drawn
from palaestra.environments.families.apps.stock import stock_suite
from palaestra.environments.families.apps.surfaces import FINISH, SURFACES, tool_of
from palaestra.environments.families.apps.world import World

RULES = (
    "You are an assistant who does a task with a person's apps. Reply with one tool call, such as "
    'mail_search_messages(query="rent"), and see its result. When all is done, call finish(), or '
    'finish(answer="…") if the task asks for something.'
)
ANSWER = "answer"


class Apps(
    Adapter, id="apps", capabilities={"state_key", "snapshot", "oracle", "progress"}, tools=True
):
    """A person's apps, and one task."""

    OVER = "The task is over."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        level, _, form = name.partition(":")
        self._level, _, self._kind = level.partition("-")
        self._surface = SURFACES[form or "task"]
        tools = self._surface.tools(stock_suite(), (), random.Random(0)) if form else ()
        self.tools = (*(tools or map(tool_of, stock_suite().apis.values())), FINISH)
        self._world: World | None = None
        self._answer: str | None = None  # what was said at the end

    @classmethod
    def names(cls) -> list[str]:
        forms = ("", *(f":{form}" for form in SURFACES if form != "task"))
        kinds = ("", f"-{CHALLENGE}", f"-{NEW}")
        return [f"{level}{kind}{form}" for level in LEVELS for kind in kinds for form in forms]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec, (level, _, form) = super().spec_of(name), name.partition(":")
        goals = LEVELS[level.partition("-")[0]]
        each, first = (12, 4) if form == "discover" else (6, 2)
        return replace(spec, typical_turns=first + each * goals)

    @property
    def instructions(self) -> str:
        return RULES

    def _begin(self, task: Task) -> Observation:
        """Open the task's world; raises InputError for a task with parameters."""
        without_parameters(task)
        self.close()
        self._drawn = self._draw(task)
        self._world, self._answer = self._drawn.open(), None
        rng = random.Random(f"tools {task.seed}")
        needed = self._drawn.needed
        self.tools = (*self._surface.tools(self._world.suite, needed, rng), FINISH)
        return Observation(self._briefing())

    def _act(self, action: Action) -> Transition:
        world = self._running()
        try:
            call = (
                parse_call(action.text, self.tools)
                if action.call is None
                else checked(action.call, self.tools)
            )
        except NotACall as error:
            return refused(str(error))
        if call.name == FINISH.name:
            return self._end(str(call.arguments.get(ANSWER, "")))
        return Transition(Observation(str(self._surface.call(world, call.name, call.arguments))))

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
        self._world = None

    def state_key(self) -> str:
        world = self._running()
        return hashed(self._current().id, world.key(), self._over, self._answer)

    def progress(self) -> float:
        """Return the share of the wanted changes, and of the answer, less other changes."""
        return self._verdict().progress

    def snapshot(self) -> bytes:
        head = json.dumps(self._answer)
        return self._saved(head.encode() + b"\n" + self._running().snapshot(), self.spec.version)

    def restore(self, snapshot: bytes) -> None:
        """Return to a snapshot; raises InputError for another environment's or version's."""
        head, _, rest = self._loaded(snapshot, self.spec.version).partition(b"\n")
        over = self._over
        self._begin(self._current())
        self._over, self._answer = over, json.loads(head)
        self._running().restore(rest)

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the reference; empty if it no longer leads to success."""
        world = self._running()
        if self._over:
            return []
        rest = rest_of(world, self._drawn.task, self._drawn.ways)
        if rest is None:
            return []
        calls, answer = rest
        plan = self._surface.plan(world, calls)
        plan.append(ToolCall(FINISH.name, {} if answer is None else {ANSWER: answer}))
        return [Action(str(call), call) for call in plan]

    # ── details ──────────────────────────────────────────────────────────────

    def _draw(self, task: Task) -> Drawn:
        return drawn(self._level, self._kind, task.seed)

    def _running(self) -> World:
        self._current()
        assert self._world is not None
        return self._world

    def _verdict(self) -> Verdict:
        return judged(self._running(), self._drawn.ways, self._answer)

    def _end(self, answer: str) -> Transition:
        self._answer = answer
        verdict = self._verdict()
        parts = {"effect": verdict.effect, "wording": verdict.wording, "reply": verdict.answer}
        return Transition(
            Observation("The task is over."),
            reward=float(verdict.success),
            terminated=True,
            success=verdict.success,
            info={**parts, "collateral": list(verdict.collateral)},
        )

    def _briefing(self) -> str:
        world = self._running()
        person = world.state.get("supervisor.person", MAIN) or {}
        listed = "\n".join(tool.signature for tool in self.tools)
        return (
            f"You act for {person.get('name')}. It is {world.now}.\nTools:\n{listed}\n"
            f"Task: {self._drawn.task.instruction}"
        )
