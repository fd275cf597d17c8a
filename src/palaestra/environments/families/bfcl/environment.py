"""BFCL's multi-turn tasks: a user makes one request after another, and the agent calls tools.

Ids: `bfcl/multi_turn_base`, `multi_turn_miss_func` (a needed tool is added later),
`multi_turn_miss_param` (the user leaves out something needed) and `multi_turn_long_context` (the
apps' answers are very long): 200 tasks each, all in the test split, because this is a benchmark.
Source: Patil et al. 2025, the Berkeley Function Calling Leaderboard, version 4, in the package
`bfcl-eval` (Apache 2.0).

Faithful: the users' requests, the apps, their functions, results and errors, the moment and the
message when a tool is added, the limit of 20 steps per turn (as in the package, the episode is
truncated after the 21st), and the verdict, by the package's checker on the recorded calls. A step
is one call or a list of calls in one message. The apps accept any values: the app itself answers a
wrong type, and a tool that is not yet available works if the agent guesses it. A reply without a
call, or an empty one, ends the agent's turn.

Ours: tools and the meanings of their arguments are listed in the first observation, because they
differ between tasks; a call of an unknown function or with an unknown argument is refused and takes
no step, while the package would evaluate it as Python; a call within other text counts.

The reward is the verdict, 1 or 0, at the end. Progress is the share of leading turns that the
package's checker accepts; it is checked when a turn ends.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from bfcl_eval.constants.default_prompts import MAXIMUM_STEP_LIMIT

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import Sampling
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.core.tool import NotACall, Tool, checked, random_call
from palaestra.environments.base import Adapter, hashed, refused
from palaestra.environments.families.bfcl.apps import Apps, judged
from palaestra.environments.families.bfcl.data import (
    CATEGORIES,
    Conversation,
    all_tools,
    by_id,
    conversations,
    listing,
    untyped,
)
from palaestra.environments.shared.tool_call_parsing import parsed_call

DONE = "done"
INSTRUCTIONS = (
    "You help a user with tools. Reply with one call and nothing else, such as "
    'name(argument="value"), and see its result; go on until the request is met. Then reply '
    f"without a call, such as: {DONE}. The next request follows. If no tool fits, or the user did "
    "not say what a tool needs, say so in words instead of calling."
)
OFTEN = 0.2  # probability that a random agent ends its turn
T = TypeVar("T")
Step = tuple[ToolCall, ...]  # calls in one message


class Bfcl(
    Adapter,
    Sampling,
    id="bfcl",
    capabilities={"state_key", "snapshot", "progress", "oracle"},
    free_text=True,
    tools=True,
    typical_turns=40,  # the longest solution takes 17 actions, and there is much to look up
):
    """A conversation of one of BFCL's multi-turn categories."""

    OVER = "The conversation is over."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.tools = all_tools()  # of all tasks; `reset` sets those of the task
        self._conversation: Conversation | None = None
        self._apps: Apps | None = None
        self._turns: list[list[Step]] = []  # the calls of each turn so far

    @classmethod
    def names(cls) -> list[str]:
        return list(CATEGORIES)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        rows = [
            {"id": conversation.id}
            for conversation in conversations(environment.rpartition("/")[2])
        ]
        return ListedTasks(environment, rows={Split.TEST: rows})

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS

    def _begin(self, task: Task) -> Observation:
        """Start a task of this category; raises InputError for any other task."""
        conversation = by_id(self.spec.name).get(str(task.parameters.get("id")))
        if conversation is None:
            raise InputError(
                f"The task '{task.id}' of '{task.environment}' is not one of BFCL's "
                f"'{self.spec.name}'; take tasks of that environment."
            )
        self.close()
        self._conversation, self._apps = conversation, Apps(conversation)
        self.tools = conversation.tools
        self._turns = [[]]
        self._passed = 0  # leading turns that the checker accepts
        self._failure = ""  # the checker's error type
        self._cut = False
        return Observation(f"Tools:\n{listing(self.tools)}\n\nUser: {conversation.requests[0]}")

    def _act(self, action: Action) -> Transition:
        try:
            calls = self._calls(action)
        except NotACall as error:
            return refused(str(error))
        return self._answer(self._do(calls) if calls else self._end_turn())

    def close(self) -> None:
        if self._apps is not None:
            self._apps.close()
        self._apps = None

    def state_key(self) -> str:
        """Hash the task and all calls: the verdict compares the result of each of them."""
        conversation, _ = self._running()
        past = [[list(map(str, step)) for step in turn] for turn in self._turns]
        return hashed(conversation.id, past, self._over)

    def snapshot(self) -> bytes:
        """Save the task and all calls: the apps' random generators have fixed seeds."""
        past = [[[asdict(call) for call in step] for step in turn] for turn in self._turns]
        saved = json.dumps([past, self._over and not self._cut])
        return self._saved(saved.encode(), version("bfcl-eval"))

    def restore(self, snapshot: bytes) -> None:
        """Replay all calls; raises InputError for another category's or version's snapshot."""
        turns, ended = json.loads(self._loaded(snapshot, version("bfcl-eval")))
        self.reset(self._current())
        conversation, _ = self._running()
        for number, turn in enumerate(turns):
            if number:
                self._end_turn()
            for step in turn:
                self._do(tuple(checked(ToolCall(**call), conversation.known) for call in step))
        if ended:
            self._end_turn()

    def progress(self) -> float:
        conversation, _ = self._running()
        return self._passed / len(conversation.requests)

    def oracle(self) -> list[Action]:
        """Return the true calls from here on, if the package's checker accepts them.

        In this turn they continue after the calls so far, or repeat some of them.
        """
        conversation, _ = self._running()
        if self._over or self._failure:
            return []
        now = len(self._turns) - 1
        wanted, begin = conversation.solution[now], self._followed(conversation.solution[now])
        later = [_steps(calls, MAXIMUM_STEP_LIMIT) for calls in conversation.solution[now + 1 :]]
        room = MAXIMUM_STEP_LIMIT - len(self._turns[-1])
        for calls in (wanted[first:] for first in range(begin, -1, -1)):
            if calls and not room:
                return []
            rest = _steps(calls, room)
            ahead = [[*self._turns[-1], *rest], *later]
            if judged(conversation, _as_text([*self._turns[:-1], *ahead]))["valid"]:
                return [action for steps in (rest, *later) for action in _actions(steps)]
        return []

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a call of an available tool that fits its schema, or sometimes end the turn."""
        if rng.random() < OFTEN:
            return Action(DONE)
        call = random_call(self.tools, rng)
        return Action(str(call), call)

    # ── details ──────────────────────────────────────────────────────────────

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
        found = [self._understood(partial(parsed_call, part)) for part in parts(action.text)]
        calls = tuple(call for call in found if call is not None)
        if calls and len(calls) < len(found):
            raise NotACall("In a list of calls, everything must be a call.")
        return calls

    def _understood(self, understand: Callable[[Sequence[Tool]], T]) -> T:
        """Parse with the available tools, else with those added later; raises NotACall."""
        try:
            return understand(untyped(self.tools))
        except NotACall as error:
            try:
                return understand(self._running()[0].known)
            except NotACall:
                raise error from None

    def _do(self, calls: Step) -> str:
        """Make the calls of one step; return their results."""
        _, apps = self._running()
        results = apps.do([str(call) for call in calls])
        self._turns[-1].append(calls)
        if len(self._turns[-1]) > MAXIMUM_STEP_LIMIT:
            results.append("These were too many steps for one request. The conversation is over.")
            self._cut_off()
        return "\n".join(results)

    def _cut_off(self) -> None:
        """End at the package's limit; the checker runs only if the last turn was reached."""
        conversation, _ = self._running()
        self._over = self._cut = True
        if len(self._turns) == len(conversation.requests):
            self._judge()
        self._failure = self._failure or ("" if self._success else "multi_turn:force_terminated")

    def _end_turn(self) -> str:
        conversation, _ = self._running()
        self._judge()
        now = len(self._turns)
        if now == len(conversation.requests):
            self._over = True
            return "The conversation is over."
        self._turns.append([])
        new = conversation.later.get(now, ())
        self.tools += new
        added = f"New tools:\n{listing(new)}\n\n" if new else ""
        return f"{added}User: {conversation.requests[now]}"

    def _judge(self) -> None:
        """Check all turns so far; after a failure, do not check again."""
        if self._failure:
            return
        found = judged(self._running()[0], _as_text(self._turns))
        if found["valid"]:
            self._passed = len(self._turns)
        else:
            self._failure = found["error_type"]

    def _followed(self, wanted: Sequence[ToolCall]) -> int:
        """Return how many of the leading wanted calls were made in this turn, in order."""
        followed = 0
        for call in (call for step in self._turns[-1] for call in step):
            followed += followed < len(wanted) and call == wanted[followed]
        return followed

    def _running(self) -> tuple[Conversation, Apps]:
        if self._conversation is None or self._apps is None:
            raise InputError("This BFCL environment has no task yet; call reset with a task first.")
        return self._conversation, self._apps


def parts(text: str) -> list[str]:
    """Split a message that is a list of calls into calls; return other messages unchanged."""
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
    """Return the call after a JSON round trip, as the package gets it from a model."""
    try:
        text = json.dumps(dict(call.arguments), ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise NotACall("The arguments must be plain values, as in JSON.") from None
    return ToolCall(call.name, json.loads(text))


def _steps(calls: Sequence[ToolCall], room: int) -> list[Step]:
    """Return one step per call, or one step with all calls if there is no room for that."""
    return [(call,) for call in calls] if len(calls) <= room else [tuple(calls)]


def _as_text(turns: Sequence[Sequence[Step]]) -> list[list[list[str]]]:
    return [[[str(call) for call in step] for step in turn] for turn in turns]


def _actions(steps: Sequence[Step]) -> list[Action]:
    """Return the actions of one turn's steps and its end."""
    texts = [", ".join(map(str, step)) for step in steps]
    return [
        *(
            Action(text, step[0]) if len(step) == 1 else Action(f"[{text}]")
            for text, step in zip(texts, steps, strict=True)
        ),
        Action(DONE),
    ]
