"""BFCL's multi-turn tasks: a user asks for one thing after another, and tools do them.

Ids: `bfcl/multi_turn_base`, `multi_turn_miss_func` (a needed tool comes only later),
`multi_turn_miss_param` (the user forgets to say something needed) and `multi_turn_long_context`
(the apps' answers are very long): 200 tasks each, all in the test split, as it is a benchmark.
Source: Patil et al. 2025, the Berkeley Function Calling Leaderboard, version 4, in the package
`bfcl-eval` (Apache 2.0).

Faithful: the users' words, the apps, their functions, results and errors, the moment when a tool
is added and what is said then, the limit of 20 steps in a turn (as in the package, the episode is
cut after the 21st), and the verdict, by the package's checker on the recorded calls. A step is one
call or, as there, a list of calls in one message. As there, the apps take any values: a wrong type
is answered by the app itself, and a tool that is not yet on offer works if somebody guesses it.
Words without a call, or nothing at all, end the agent's turn.

Ours: tools and their arguments' meanings are listed in the first observation, as they differ from
task to task; a call of an unknown function or with an unknown argument is refused and takes no
step, while the package would evaluate it as Python; a call within other words counts.

The reward is the verdict, 1 or 0, at the end. Progress is the share of leading turns that the
package's checker accepts; it is judged when a turn ends.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

from bfcl_eval.constants.default_prompts import MAXIMUM_STEP_LIMIT

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.core.tool import NotACall, Tool, checked, random_call
from palaestra.environments.apps.bfcl_apps import Apps, judged
from palaestra.environments.apps.bfcl_data import (
    CATEGORIES,
    Conversation,
    all_tools,
    by_id,
    conversations,
    listing,
    untyped,
)
from palaestra.environments.apps.speech import heard
from palaestra.environments.snapshots import opened, sealed

DONE = "done"
INSTRUCTIONS = (
    "You help a user with tools. Reply with one call and nothing else, such as "
    'name(argument="value"), and see its result; go on until the request is met. Then reply '
    f"without a call, such as: {DONE}. The next request follows. If no tool fits, or the user did "
    "not say what a tool needs, say so in words instead of calling."
)
OFTEN = 0.2  # how often a random agent ends its turn
T = TypeVar("T")
Step = tuple[ToolCall, ...]  # calls in one message


class Bfcl(Environment):
    """A conversation of one of BFCL's multi-turn categories."""

    capabilities = frozenset(
        {Capability.STATE_KEY, Capability.SNAPSHOT, Capability.PROGRESS, Capability.ORACLE}
    )
    free_text = True

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.tools = all_tools()  # of all tasks; those of a task come with it
        self._task: Task | None = None
        self._plan: Conversation | None = None
        self._apps: Apps | None = None

    @classmethod
    def names(cls) -> list[str]:
        return list(CATEGORIES)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        rows = [{"id": plan.id} for plan in conversations(environment.rpartition("/")[2])]
        return ListedTasks(environment, rows={Split.TEST: rows})

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS

    @property
    def typical_turns(self) -> int:
        return 40  # the longest true way takes 17 actions, and there is much to look up

    def reset(self, task: Task) -> Observation:
        """Start a task of this category; raises InputError for any other task."""
        plan = by_id(self.name).get(str(task.parameters.get("id")))
        if plan is None:
            raise InputError(
                f"The task '{task.id}' of '{task.environment}' is not one of BFCL's "
                f"'{self.name}'; take tasks of that environment."
            )
        self.close()
        self._task, self._plan, self._apps = task, plan, Apps(plan)
        self.tools = plan.tools
        self._turns: list[list[Step]] = [[]]
        self._passed = 0  # leading turns that the checker accepts
        self._failure = ""  # the checker's word for what was wrong in a turn
        self._over = self._cut = False
        return Observation(f"Tools:\n{listing(self.tools)}\n\nUser: {plan.requests[0]}")

    def step(self, action: Action) -> Transition:
        self._running()
        if self._over:
            return Transition(Observation("The conversation is over."), valid=False)
        try:
            calls = self._calls(action)
        except NotACall as why:
            return Transition(Observation(str(why)), valid=False)
        return self._answer(self._do(calls) if calls else self._end_turn())

    def close(self) -> None:
        if self._apps is not None:
            self._apps.close()
        self._apps = None

    def state_key(self) -> str:
        """The task and all calls: the verdict compares what every one of them returned."""
        plan, _ = self._running()
        past = [[list(map(str, step)) for step in turn] for turn in self._turns]
        state = (plan.id, past, self._over)
        return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        """The task and all calls: the apps' dice have fixed seeds."""
        self._running()
        assert self._task is not None
        past = [[[asdict(call) for call in step] for step in turn] for turn in self._turns]
        saved = {"task": asdict(self._task), "turns": past, "ended": self._over and not self._cut}
        return sealed(self._id, version("bfcl-eval"), json.dumps(saved).encode())

    def restore(self, snapshot: bytes) -> None:
        """Make all calls again; raises InputError if it is another category's or version's."""
        saved: dict[str, Any] = json.loads(opened(snapshot, self._id, version("bfcl-eval")))
        self.reset(Task(**{**saved["task"], "split": Split(saved["task"]["split"])}))
        plan, _ = self._running()
        for number, turn in enumerate(saved["turns"]):
            if number:
                self._end_turn()
            for step in turn:
                self._do(tuple(checked(ToolCall(**call), plan.known) for call in step))
        if saved["ended"]:
            self._end_turn()

    def progress(self) -> float:
        plan, _ = self._running()
        return self._passed / len(plan.requests)

    def oracle(self) -> list[Action]:
        """The true calls from here on, where the package's checker accepts them after the past.

        In this turn they go on behind those that were made, or begin again before one of them.
        """
        plan, _ = self._running()
        if self._over or self._failure:
            return []
        now = len(self._turns) - 1
        wanted, begin = plan.way[now], self._followed(plan.way[now])
        later = [_steps(calls, MAXIMUM_STEP_LIMIT) for calls in plan.way[now + 1 :]]
        room = MAXIMUM_STEP_LIMIT - len(self._turns[-1])
        for calls in (wanted[first:] for first in range(begin, -1, -1)):
            if calls and not room:
                return []
            rest = _steps(calls, room)
            ahead = [[*self._turns[-1], *rest], *later]
            if judged(plan, _written([*self._turns[:-1], *ahead]))["valid"]:
                return [action for steps in (rest, *later) for action in _actions(steps)]
        return []

    def sample_action(self, dice: random.Random) -> Action:
        """A call of a tool on offer that fits its schema, and at times the end of the turn."""
        if dice.random() < OFTEN:
            return Action(DONE)
        call = random_call(self.tools, dice)
        return Action(str(call), call)

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _id(self) -> str:
        return f"bfcl/{self.name}"

    @property
    def _success(self) -> bool:
        return self._over and self._passed == len(self._running()[0].requests)

    def _answer(self, text: str) -> Transition:
        won = self._success
        return Transition(
            Observation(text),
            reward=float(won),
            terminated=self._over and (won or not self._cut),
            truncated=self._cut and not won,
            success=won,
            info={"failure": self._failure} if self._over and self._failure else {},
        )

    def _calls(self, action: Action) -> Step:
        if (call := action.call) is not None:
            return (_plain(self._understood(partial(checked, call))),)
        found = [self._understood(partial(heard, part)) for part in parts(action.text)]
        calls = tuple(call for call in found if call is not None)
        if calls and len(calls) < len(found):
            raise NotACall("In a list of calls, everything must be a call.")
        return calls

    def _understood(self, understand: Callable[[Sequence[Tool]], T]) -> T:
        """With the tools on offer, else with those still to come; raises NotACall."""
        try:
            return understand(untyped(self.tools))
        except NotACall as why:
            try:
                return understand(self._running()[0].known)
            except NotACall:
                raise why from None

    def _do(self, calls: Step) -> str:
        """Make the calls of one step; what they returned."""
        _, apps = self._running()
        results = apps.do([str(call) for call in calls])
        self._turns[-1].append(calls)
        if len(self._turns[-1]) > MAXIMUM_STEP_LIMIT:
            results.append("These were too many steps for one request. The conversation is over.")
            self._cut_off()
        return "\n".join(results)

    def _cut_off(self) -> None:
        """End by the package's limit; it judges only conversations that had all their turns."""
        plan, _ = self._running()
        self._over = self._cut = True
        if len(self._turns) == len(plan.requests):
            self._judge()
        self._failure = self._failure or ("" if self._success else "multi_turn:force_terminated")

    def _end_turn(self) -> str:
        plan, _ = self._running()
        self._judge()
        now = len(self._turns)
        if now == len(plan.requests):
            self._over = True
            return "The conversation is over."
        self._turns.append([])
        new = plan.later.get(now, ())
        self.tools += new
        told = f"New tools:\n{listing(new)}\n\n" if new else ""
        return f"{told}User: {plan.requests[now]}"

    def _judge(self) -> None:
        """Ask the checker about all turns up to this; one that failed is not asked about again."""
        if self._failure:
            return
        found = judged(self._running()[0], _written(self._turns))
        if found["valid"]:
            self._passed = len(self._turns)
        else:
            self._failure = found["error_type"]

    def _followed(self, wanted: Sequence[ToolCall]) -> int:
        """How many of the wanted calls were made in this turn, from the first on, in order."""
        followed = 0
        for call in (call for step in self._turns[-1] for call in step):
            followed += followed < len(wanted) and call == wanted[followed]
        return followed

    def _running(self) -> tuple[Conversation, Apps]:
        if self._plan is None or self._apps is None:
            raise InputError("This BFCL world has no task yet; call reset with one first.")
        return self._plan, self._apps


def parts(text: str) -> list[str]:
    """The calls of a message that is a list of them, one by one; else the message as it is."""
    tagged = re.findall(r"<tool_call>.*?</tool_call>", text, re.DOTALL)
    if len(tagged) > 1:
        return tagged
    bare = text.strip("`\n\t ")
    if not (bare.startswith("[") and bare.endswith("]")):
        return [text]
    try:
        found = json.loads(bare)
        if found and all(isinstance(part, dict) for part in found):
            return [json.dumps({"arguments": part.get("parameters", {}), **part}) for part in found]
    except (ValueError, RecursionError):
        pass
    try:
        tree = ast.parse(bare, mode="eval").body
        listed = tree.elts if isinstance(tree, ast.List) else []
        if listed and all(isinstance(part, ast.Call) for part in listed):
            return [ast.unparse(part) for part in listed]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return [text]


def _plain(call: ToolCall) -> ToolCall:
    """The call as it is after its way through JSON, as the package gets it from a model."""
    try:
        text = json.dumps(dict(call.arguments), ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise NotACall("The arguments must be plain values, as in JSON.") from None
    return ToolCall(call.name, json.loads(text))


def _steps(calls: Sequence[ToolCall], room: int) -> list[Step]:
    """One call a step, or where there is no room for so many, all in one."""
    return [(call,) for call in calls] if len(calls) <= room else [tuple(calls)]


def _written(turns: Sequence[Sequence[Step]]) -> list[list[list[str]]]:
    return [[[str(call) for call in step] for step in turn] for turn in turns]


def _actions(steps: Sequence[Step]) -> list[Action]:
    """The steps of one turn, and its end."""
    texts = [", ".join(map(str, step)) for step in steps]
    return [
        *(
            Action(text, step[0]) if len(step) == 1 else Action(f"[{text}]")
            for text, step in zip(texts, steps, strict=True)
        ),
        Action(DONE),
    ]
