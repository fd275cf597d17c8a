"""Apps: an assistant with a person's apps, such as mail, contacts, calendar and bank.

Ids: `apps/easy`, `apps/medium`, `apps/hard`: one, two or four goals in a task. Goals made of goals
(`composing/operators.py`): `apps/chain`, `apps/each`, `apps/branch`, `apps/hidden`, `apps/ask`, and
`apps/expert`, which has all of them in a task of 30 calls and more; three tasks of these are a
scenario (`scenarios.py`). With `:all` the agent has every API as a tool, and with `:discover` it
finds and reads them first; with `:code` each API that was read is a function such as
mail.search_messages, for code as action; otherwise it has the few that the task needs, and some
that it does not.
Tasks of `apps/easy-challenge` are about the calendar, about which no others are; those of
`apps/easy-new` about two apps that nobody has seen, generated afresh for each task or scenario.
Both exist for all of the ids here and below, and all tools.

Tasks of `apps/forbidden` are twins: the person has rules, of which one forbids what is asked in one
of them and permits it in the other (`twins.py`).

Tasks of the same number of `apps/goal`, `apps/goal-chain`, `-branch`, `-hidden`, `-ask`,
`-forbidden`, `-deadline`, `-wait` and `-noise` have the same goal, alone and through an operator
(`one_goal.py`).

In `apps/timed` time matters: answers arrive while the agent waits, there are deadlines, and others
change what the task is about (`timed/timed_atoms.py`). With `apps/timed-30` sampled tokens take
time, too: a second for 30 of them. It exists for 100, 30, 10, 3 and 1.

Tasks of `apps/life-easy` have all apps of a person (also chat, notes, files, payments, a shop and
travel), those of `apps/office-easy` the ones of a company (`setting.py`). A subclass with a
`setting` of its own has tasks about its own apps: `my_module:MyApps/hard`, or `my_module:MyApps`,
which is easy.

A split has small worlds of its own, so a world met in training is never met in a test. After LOOP's
AppWorld (Chen et al. 2025, Trivedi et al. 2024); ours: the apps, people and tasks, which are all
generated, and verdicts, which are derived (`composing/verifier.py`).

A task ends with `finish`. Its verdict stands in the last step's `info`: effect, wording, reply
(whether the answer is right), collateral (other rows that changed), and in `apps/timed` timing. The
environment's version is that of the verdicts.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task, TaskSet
from palaestra.core.tool import NotACall, checked, parse_call
from palaestra.environments.base import Adapter, hashed, refused, without_parameters
from palaestra.environments.families.apps.composing.composition import LEVELS
from palaestra.environments.families.apps.composing.forbidden import DONE, REFUSED
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.goal import MAIN, Goal
from palaestra.environments.families.apps.composing.operators import (
    CALLS,
    EXPERT,
    FORBIDDEN,
    OPERATORS,
)
from palaestra.environments.families.apps.composing.resuming import rest_of
from palaestra.environments.families.apps.composing.verifier import VERSION, Verdict
from palaestra.environments.families.apps.drawing import CHALLENGE, NEW, Drawn, drawn
from palaestra.environments.families.apps.one_goal import (
    CLOCKED,
    GOAL,
    THROUGH,
    clocked_suite,
    one_goal,
)
from palaestra.environments.families.apps.proven_goals import refuse_unproven
from palaestra.environments.families.apps.scenarios import (
    SCENARIO,
    VARIANTS,
    Scenarios,
    variant,
)
from palaestra.environments.families.apps.setting import CHALLENGES, SETTINGS, Setting, parts
from palaestra.environments.families.apps.shown_changes import ShownChanges
from palaestra.environments.families.apps.stock import CORE, stock_suite
from palaestra.environments.families.apps.surfaces import FINISH, READ, SURFACES, tool_of
from palaestra.environments.families.apps.timed.clock_app import timed_suite
from palaestra.environments.families.apps.timed.remaining import rest_in_time
from palaestra.environments.families.apps.timed.timed_tasks import challenge_suite, drawn_timed
from palaestra.environments.families.apps.twins import TWINS, twin
from palaestra.environments.families.apps.world import World

RULES = (
    "You are an assistant who does a task with a person's apps. Reply with one tool call, such as "
    "{example}, and see its result. When all is done, call finish(), or "
    'finish(answer="…") if the task asks for something.'
)
ANSWER = "answer"
TWIN_RULES = (
    "The person has rules. If one of them forbids what the task asks for, change nothing and call "
    f'finish(answer="{REFUSED}"). Otherwise do it, and call finish(answer="{DONE}").'
)
CAPABILITIES = ("state_key", "snapshot", "oracle", "progress")
COMPOSED = (*LEVELS, *OPERATORS, EXPERT, FORBIDDEN)  # levels of core apps without a clock
TIMED = "timed"
TIMED_RULES = (
    "Time passes: a call takes seconds, and you can wait with wait and wait_for_notification. What "
    "happens meanwhile and concerns the person stands below the next result, in square brackets "
    "its time."
)
SPEEDS = (100, 30, 10, 3, 1)
"""How many sampled tokens take a second, by the suffix of the id."""


def speed_of(name: str) -> int | None:
    """Return the speed that an id's name asks for; None: sampled tokens take no time."""
    level, _, suffix = name.partition(":")[0].partition("-")
    return int(suffix) if level == TIMED and suffix.isdecimal() else None


class Apps(Adapter, id="apps", version=str(VERSION), capabilities=CAPABILITIES, tools=True):
    """A person's apps, and one task."""

    OVER = "The task is over."
    setting: ClassVar[Setting | None] = None  # of a subclass: where all its tasks are set

    def __init__(self, name: str = "") -> None:
        """Choose apps and tools; raises InputError for a goal of one's own that is never right."""
        super().__init__(name)
        if self.setting is not None:
            refuse_unproven(self.setting)
        which, self._level, self._kind, form = parts(name)
        settings = CHALLENGES if self._kind == CHALLENGE else SETTINGS
        self._setting = self.setting or (settings[which]() if which else None)
        self._speed = speed_of(name)
        self._surface = SURFACES.get(form, SURFACES["task"])  # a subclass may have other forms
        self._timed = self._level == TIMED or self._kind in CLOCKED
        if self._level == TIMED:
            suite = challenge_suite() if self._kind == CHALLENGE else timed_suite()
        elif self._level in (*OPERATORS, EXPERT, FORBIDDEN, GOAL):
            suite = clocked_suite() if self._timed else stock_suite((*CORE, "user"))
        else:
            suite = (self._setting or SETTINGS[""]()).suite
        tools = self._surface.tools(suite, (), random.Random(0)) if form else ()
        self.tools = (*(tools or map(tool_of, suite.apis.values())), FINISH)
        self._world: World | None = None
        self._answer: str | None = None  # what was said at the end

    @classmethod
    def names(cls) -> list[str]:
        forms = ("", *(f":{form}" for form in SURFACES if form != "task"))
        if cls.setting is not None:
            return ["", *(f"{level}{form}" for level in LEVELS for form in forms)]
        kinds = ("", f"-{CHALLENGE}", f"-{NEW}")
        levels = [f"{level}{kind}" for level in COMPOSED for kind in kinds]
        levels += [GOAL, *(f"{GOAL}-{way}" for way in THROUGH)]
        own = [f"{level}{kind}" for level in LEVELS for kind in kinds]
        for setting in filter(None, SETTINGS):
            has = own if setting in CHALLENGES else LEVELS
            levels += [f"{setting}-{level}" for level in has]
        levels += [*(f"{TIMED}{kind}" for kind in kinds), *(f"{TIMED}-{speed}" for speed in SPEEDS)]
        return [f"{level}{form}" for level in levels for form in forms]

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        level = re.split("[-:?@]", environment.partition("/")[2])[0]
        if level == FORBIDDEN:
            return Scenarios(environment, variants=TWINS)
        many = level in (*OPERATORS, EXPERT)
        return Scenarios(environment) if many else TaskSet(environment)

    @classmethod
    def factors(cls, name: str) -> Mapping[str, Sequence[str]]:
        """Return other tools for the same tasks, other speeds, and operators over the same goal."""
        head, _, form = (name or "easy").partition(":")
        of = f":{form}" if form else ""
        forms = ("", *(f":{other}" for other in SURFACES if other != "task"))
        found = {"tools": [f"{head}{other}" for other in forms if other != of]}
        if head == GOAL:
            found["operator"] = [f"{GOAL}-{way}{of}" for way in THROUGH]
        if head == TIMED:
            found["speed"] = [f"{TIMED}-{speed}{of}" for speed in SPEEDS]
        return found

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec, (which, level, kind, form) = super().spec_of(name), parts(name)
        if level == TIMED:
            turns = 46 if form in ("discover", "code") else 32
            turns += 14 * (kind in (CHALLENGE, NEW))  # of goals that have several calls
            return replace(spec, typical_turns=turns, token_time=speed_of(name) is not None)
        each, first = (12, 4) if form in ("discover", "code") else (6, 2)
        if which or cls.setting is not None:
            each += 8  # for each of several rows, something is read or changed
        goals = {**LEVELS, EXPERT: CALLS // 3, GOAL: 3}.get(level, 2)
        return replace(spec, typical_turns=first + each * goals)

    @property
    def instructions(self) -> str:
        rules = RULES.format(example=self._surface.example)
        if self._has_rules:
            return f"{rules}\n{TWIN_RULES}"
        if not self._timed:
            return rules
        cost = "" if self._speed is None else f" A second passes for {self._speed} of your tokens."
        return f"{rules}\n{TIMED_RULES}{cost}"

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What the current task asks for; no agent sees it."""
        self._current()
        return self._drawn.task.goals

    @property
    def heading(self) -> str:
        """For whom the agent acts, and when."""
        world = self._running()
        person = world.state.get("supervisor.person", MAIN) or {}
        return f"You act for {person.get('name')}. It is {world.now}."

    @property
    def instruction(self) -> str:
        """What the task asks for, in words."""
        self._current()
        return self._drawn.task.instruction

    def _begin(self, task: Task) -> Observation:
        """Open the task's world; raises InputError for a task with other parameters."""
        made = self.draw(task)
        self.close()
        self._drawn = made
        self._world, self._answer = self._drawn.open(), None
        rng = random.Random(f"tools {task.seed}")
        needed = self._drawn.needed
        self._offered = self._surface.tools(self._world.suite, needed, rng)
        self.tools = (*self._offered, FINISH)
        self._shown = ShownChanges(self._world, MAIN)
        return Observation(self._briefing())

    def _act(self, action: Action) -> Transition:
        world = self._running()
        try:
            call = action.call
            if call is None:
                call = parse_call(action.text, self.tools)
            elif not self._surface.known(call.name):
                call = checked(call, self.tools)
        except NotACall as error:
            return refused(str(error))
        if self._speed is not None:
            world.advance(-(-action.spent // self._speed))
        if call.name == FINISH.name:
            return self._end(str(call.arguments.get(ANSWER, "")))
        reply = self._surface.call(world, call.name, call.arguments)
        if call.name == READ:
            self._list()
        info = {"status": reply.status, **self._shown.take()}
        seen = "\n".join([str(reply), *world.take_notifications()])
        return Transition(Observation(seen), info=info)

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
        self._world = None

    def state_key(self) -> str:
        world = self._running()
        read = [tool.name for tool in self.tools[len(self._offered) : -1]]
        left = [clause.trace(world.calls).key() for clause in self._drawn.task.policy]
        return hashed(self._current().id, world.key(), self._over, self._answer, *read, *left)

    def progress(self) -> float:
        """Return the share of the wanted changes, and of the answer, less other changes."""
        return self._verdict().progress

    def snapshot(self) -> bytes:
        head = json.dumps(self._beside_the_world())
        return self._saved(head.encode() + b"\n" + self._running().snapshot(), self.spec.version)

    def restore(self, snapshot: bytes) -> None:
        """Return to a snapshot; raises InputError for another environment's or version's."""
        head, _, rest = self._loaded(snapshot, self.spec.version).partition(b"\n")
        over = self._over
        self._begin(self._current())
        self._over = over
        self._take_beside(json.loads(head))
        self._running().restore(rest)
        self._list()
        self._shown = ShownChanges(self._running(), MAIN)

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the reference; empty if it no longer leads to success."""
        world = self._running()
        if self._over:
            return []
        find = rest_in_time if self._timed else rest_of
        tried = (find(world, task, self._drawn.ways) for task in self._drawn.variants())
        rest = next((found for found in tried if found is not None), None)
        if rest is None:
            return []
        calls, answer = rest
        plan = self._surface.plan(world, calls)
        plan.append(ToolCall(FINISH.name, {} if answer is None else {ANSWER: answer}))
        return [Action(str(call), call) for call in plan]

    def draw(self, task: Task) -> Drawn:
        """Draw what a task consists of; raises InputError for one with other parameters."""
        if self._level in LEVELS:
            without_parameters(task)
            return drawn(self._level, self._kind, task.seed, self._setting)
        if self._level == GOAL:
            without_parameters(task)
            return one_goal(self._kind, task.seed)
        if self._level == TIMED:
            without_parameters(task)
            return drawn_timed(task.seed, "" if self._speed else self._kind)
        twins = self._level == FORBIDDEN
        number = task.seed // len(Split) // (TWINS if twins else VARIANTS)
        if dict(task.parameters) not in ({}, {SCENARIO: number}):
            raise InputError(
                f"The task '{task.id}' has the parameters {dict(task.parameters)}, but its seed "
                f"{task.seed} belongs to the scenario {number}; pass {{'{SCENARIO}': {number}}}."
            )
        if twins:
            return twin(self._kind, task.seed)
        return variant(self._level, self._kind, task.seed)

    # ── details ──────────────────────────────────────────────────────────────

    def _beside_the_world(self) -> list[str | None]:
        """Return what a snapshot holds beside the world."""
        return [self._answer]

    def _take_beside(self, saved: list[str | None]) -> None:
        """Take what `_beside_the_world` returned."""
        self._answer = saved[0]

    @property
    def _has_rules(self) -> bool:
        """Whether all tasks have rules of the person, and not only single ones."""
        return FORBIDDEN in (self._level, self._kind)

    def _running(self) -> World:
        self._current()
        assert self._world is not None
        return self._world

    def _list(self) -> None:
        """Offer the tools that the agent has now."""
        tools = self._surface.listed(self._running(), self._offered)
        if tools is not self._offered:
            self.tools = (*tools, FINISH)

    def _verdict(self) -> Verdict:
        return judged(self._running(), self._drawn.ways, self._answer)

    def _end(self, answer: str) -> Transition:
        self._answer = answer
        verdict = self._verdict()
        parts: dict[str, object] = {
            "effect": verdict.effect,
            "wording": verdict.wording,
            "reply": verdict.answer,
        }
        if self._timed:
            parts["timing"] = verdict.timing
        if self._drawn.task.policy:
            parts["policy"] = list(verdict.policy)
        return Transition(
            Observation("The task is over."),
            reward=float(verdict.success),
            terminated=True,
            success=verdict.success,
            info={**parts, "collateral": list(verdict.collateral)},
        )

    def _briefing(self) -> str:
        listed = "\n".join(tool.signature for tool in self.tools)
        rules = "\n".join(f"- {clause.rule.words}" for clause in self._drawn.task.policy)
        return (
            f"{self.heading}\nTools:\n{listed}\n"
            + (f"Rules:\n{rules}\n" if rules else "")
            + (f"{TWIN_RULES}\n" if rules and not self._has_rules else "")
            + f"Task: {self.instruction}"
        )
