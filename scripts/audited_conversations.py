"""The audit of one task that is a conversation or a stream: desks, proactive help, procedures.

What is tried is the expert's plan with something changed. A wrong plan goes on as if nothing were
wrong; a right one goes on with what the expert does next.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from audit_record import Record
from audited_compositions import CHANCE, PLANTED, RIGHT, typed_calls

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool, checked, random_call
from palaestra.environments.families.apps.compiler.api import Api
from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.apps.composing.verifier import Judge
from palaestra.environments.families.apps.composing.wrong_solutions import other_values
from palaestra.environments.families.apps.surfaces import FINISH, tool_name
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.desk import expert
from palaestra.environments.families.desk.environment import HAND_OVER, Desk
from palaestra.environments.families.proactive.environment import MOMENT, SILENCE, Proactive
from palaestra.environments.families.synthesised.procedure_desk import REFUSALS, ProcedureDesk

Plan = Sequence[Action]
Edit = tuple[str, Plan]
CONSENT = "Shall I go ahead?"
NUMBER = re.compile(r"\d")
EXTRA = 40  # calls that are drawn to find one that changes something else
LONGEST = 100  # actions of a constant behaviour
GREETING = "Thank you for your patience. "


class Played(NamedTuple):
    """How a plan ended."""

    success: bool
    left: Any = None  # the rows that are other ones, without what is free


def audited(
    env: Desk | Proactive | ProcedureDesk, task: Task, twin: Task | None, record: Record
) -> None:
    """Try everything on one task; `twin` is the other one of its pair, if they are twins."""
    rng = random.Random(f"audit {record.id} {record.number}")
    env.reset(task)
    plan = list(env.oracle())
    reference = play(env, task, plan)
    record.calls, record.solved = len(plan), reference.success
    record.goals, record.twin = _goals(env, record.id), _is_twin(env)
    record.constant = any(play(env, task, p).success for p in _constant(env))
    record.chance = _by_chance(env, task, rng)
    edits = _ways_to_fail(env, task, plan, reference, rng)
    if twin is not None and _is_twin(env):
        env.reset(twin)
        edits.append(("what is right for its twin", list(env.oracle())))
    for label, wrong in rng.sample(edits, min(PLANTED, len(edits))):
        record.try_wrong(f"{task.seed}: {label}: {_said(wrong)}", play(env, task, wrong).success)
    places = rng.choices(range(len(plan)), k=RIGHT)
    for at in places:
        label, success = _another_right(env, task, plan, at, rng)
        if label:
            record.try_right(f"{task.seed}: {label} before action {at + 1}", success)


def play(env: Desk | Proactive | ProcedureDesk, task: Task, plan: Plan) -> Played:
    """Play a plan from the beginning, as far as the task goes."""
    env.reset(task)
    for action in plan:
        step = env.step(action)
        if step.terminated:
            return Played(step.success, _rows(env))
    return Played(False, _rows(env))


# ── what is wrong ────────────────────────────────────────────────────────────


def _ways_to_fail(
    env: Desk | Proactive | ProcedureDesk,
    task: Task,
    plan: Plan,
    reference: Played,
    rng: random.Random,
) -> list[Edit]:
    found = list[Edit]()
    env.reset(task)
    nothing = [_silence()] if isinstance(env, Proactive) else []
    for at, action in enumerate(plan):
        before, rest = plan[:at], plan[at + 1 :]
        call = action.call
        if isinstance(env, ProcedureDesk):
            others = [] if call is None else _other_calls(call)
            repeated = [("twice", [action] * 2)] if rest else []  # nothing follows the last turn
            changes = [("left out", []), *repeated, *others]
            found += [(f"{label}: {action.text}", [*before, *c, *rest]) for label, c in changes]
            continue
        if call is None:
            found += [
                (label, [*before, *changed, *rest]) for label, changed in _messages(env, action)
            ]
            continue
        api = _api(env, call)
        if api is None or not api.changes:
            continue
        found.append((f"without {call}", [*before, *nothing, *rest]))
        for name, value in call.arguments.items():
            for other in other_values(env.world, api, name, value, (), rng):
                arguments = {**call.arguments, name: other}
                if isinstance(env, Proactive) and _is_declared(env, Call(api.full_name, arguments)):
                    continue  # such as another card where the person names none
                wrong = [*before, _action(ToolCall(call.name, arguments)), *rest]
                found.append((f"{call} with {name} {other!r}", wrong))
        twice = [*before, action, action, *rest]
        if isinstance(env, Desk) and play(env, task, twice).left != reference.left:
            found.append((f"{call} twice", twice))
        env.reset(task)
    if isinstance(env, ProcedureDesk):
        return found
    apis = [api for api in _apis(env) if api.changes]
    calls = itertools.islice(typed_calls(env.world, apis, rng), EXTRA)
    for made in list(calls):
        action = _action(ToolCall(tool_name(made.api), made.arguments))
        extra = [*plan[:-1], action, *plan[-1:]]
        if isinstance(env, Proactive):
            if _is_valid(action, env.tools):  # else it is no offer
                found.append((f"also offers {action.text}", [action, *plan]))
        elif play(env, task, extra).left != reference.left:
            found.append((f"also {action.text}", extra))
    return found


def _messages(env: Desk | Proactive, action: Action) -> Iterator[Edit]:
    """Yield other messages in the place of one, where it matters."""
    if CONSENT in action.text:
        yield "does not ask", []
    elif "The answer to your question" in action.text:
        digits = NUMBER.sub(lambda found: str((int(found[0]) + 1) % 10), action.text)
        if digits != action.text:
            yield "another answer", [Action(digits)]
        yield "no answer", [Action(f"That is done. {expert.ELSE}")]
    elif isinstance(env, Desk) and expert.ELSE in action.text:
        why = {"reason": "I pass this on."}
        yield "hands over", [_action(ToolCall(f"{env.drawn.desk.name}_{HAND_OVER}", why))]


def _other_calls(call: ToolCall) -> list[Edit]:
    """Return calls of a stub with another value."""
    return [
        (
            f"{name} {value} 2",
            [_action(ToolCall(call.name, {**call.arguments, name: f"{value} 2"}))],
        )
        for name, value in call.arguments.items()
    ]


def _constant(env: Desk | Proactive | ProcedureDesk) -> list[Plan]:
    """Return behaviour that is always the same."""
    if isinstance(env, ProcedureDesk):
        return [[Action(words)] for words in REFUSALS]
    if isinstance(env, Proactive):
        return [[_silence()] * LONGEST]
    if env.alone_with_tools:
        return [[_action(ToolCall(FINISH.name, {"answer": words}))] for words in REFUSALS]
    over = ToolCall(f"{env.drawn.desk.name}_{HAND_OVER}", {"reason": "I pass this on."})
    says = ("How can I help you?", "I am sorry, I cannot do that.")
    return [*([Action(words)] * LONGEST for words in says), [_action(over)]]


def _by_chance(env: Desk | Proactive | ProcedureDesk, task: Task, rng: random.Random) -> bool:
    """Return whether random actions solve a task."""
    env.reset(task)
    for _ in range(CHANCE):
        sample: Callable[[], Action] = (
            (lambda: env.sample_action(rng))
            if isinstance(env, Desk)
            else (lambda: _action(random_call(env.tools, rng)))
        )
        step = env.step(sample())
        if step.terminated:
            return step.success
    return False


# ── what is right ────────────────────────────────────────────────────────────


def _another_right(
    env: Desk | Proactive | ProcedureDesk, task: Task, plan: Plan, at: int, rng: random.Random
) -> tuple[str, bool]:
    """Try something needless before an action; return what it was, and if the task is solved.

    There may be nothing to try; then the first is empty.
    """
    env.reset(task)
    for action in plan[:at]:
        env.step(action)
    extra = _needless(env, plan[at], rng)
    if extra is None:
        return "", False
    label, actions = extra
    for action in actions:
        step = env.step(action)
        if step.terminated:
            return label, step.success
    success = False
    for action in env.oracle():
        success = env.step(action).success
    return label, success


def _needless(
    env: Desk | Proactive | ProcedureDesk, action: Action, rng: random.Random
) -> Edit | None:
    """Return actions that take nothing from what is right."""
    if isinstance(env, ProcedureDesk):
        wordy = Action(f"{GREETING}{action.text}")
        return None if action.call is not None else ("more words", [wordy])
    way = rng.randrange(3)
    if way == 0 and action.call is None:
        return "more words", [Action(f"{GREETING}{action.text}")]
    if way == 1 and isinstance(env, Desk) and not env.alone_with_tools and env.turns < 2:
        return "a needless question", [Action("Could you tell me more?")]
    reads = [api for api in _apis(env) if not api.changes]
    made = next(typed_calls(env.world, reads, rng), None)
    if made is None:
        return None
    read = _action(ToolCall(tool_name(made.api), made.arguments))
    return f"a needless {read.text}", [read]


# ── of the families ──────────────────────────────────────────────────────────


def _apis(env: Desk | Proactive) -> list[Api]:
    """Return the APIs that the agent has as tools."""
    names = {tool.name for tool in env.tools}
    apis = env.world.suite.apis.values()
    return [api for api in apis if tool_name(api.full_name) in names]


def _api(env: Desk | Proactive, call: ToolCall) -> Api | None:
    return next((api for api in _apis(env) if tool_name(api.full_name) == call.name), None)


def _is_declared(env: Proactive, call: Call) -> bool:
    """Return whether a call does what the person wants in another way that the goal declares."""
    for errand in filter(lambda errand: errand.wanted, env.errands):
        goal = errand.goal
        for slots in goal.atom.alternatives(goal.slots, env.world):
            other = replace(errand, goal=replace(goal, slots=slots))
            if other.offer(env.world) == call:
                return True
    return False


def _rows(env: Desk | Proactive | ProcedureDesk) -> Any:
    world: World | None = None if isinstance(env, ProcedureDesk) else env.world
    return None if world is None else Judge(world.state.columns).canonical(world.state.changes())


def _goals(env: Desk | Proactive | ProcedureDesk, id: str) -> list[str]:
    if isinstance(env, Desk):
        return [f"{id}: {env.drawn.kind.name}"]
    return [id.partition("/")[0] if isinstance(env, ProcedureDesk) else id]


def _is_twin(env: Desk | Proactive | ProcedureDesk) -> bool:
    """Return whether constant behaviour solves the present task or its twin."""
    if isinstance(env, Desk):
        return env.drawn.kind.twin
    return isinstance(env, Proactive) and env.spec.name.endswith(MOMENT)


def _is_valid(action: Action, tools: Sequence[Tool]) -> bool:
    assert action.call is not None
    try:
        checked(action.call, tools)
    except NotACall:
        return False
    return True


def _silence() -> Action:
    return _action(ToolCall(SILENCE.name, {}))


def _action(call: ToolCall) -> Action:
    return Action(str(call), call)


def _said(plan: Plan) -> str:
    return " | ".join(action.text for action in plan)
