"""The rest of a reference, for a task that somebody has begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.environments.families.apps.compiler.api import ApiError
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.goal import MAIN, Call, Goal
from palaestra.environments.families.apps.composing.verifier import Wanted
from palaestra.environments.families.apps.world import OK, World


def rest_of(
    world: World, task: Composition, ways: list[Wanted], *, needed: bool = False
) -> tuple[list[Call], str | None] | None:
    """Return the calls that solve the task from here, and the answer; None if nothing does.

    The reference runs on a fork, goal by goal. A goal whose changes were all made is done; of
    another one, changes that were made already are not made again. With `needed` neither are those
    that would change no row: a form that was left as it is cannot be sent.
    """
    fork = world.fork()
    replies = _replies(world)
    calls: list[Call] = []
    answer: Any = None
    try:
        for goal in task.goals:
            if (done := _done(goal, world, replies)) is not None:
                found = done[0]
            else:
                found = _carried_on(goal, fork, replies, calls, needed)
            answer = answer if found is None else found
    except (IndexError, KeyError, ApiError):  # what the reference looks for is gone
        return None
    else:
        said = None if answer is None else str(answer)
        solved = judged(fork, ways, said or "").success
        return (_without_known(world, calls), said) if solved else None
    finally:
        fork.close()


def _replies(world: World) -> dict[str, list[Any]]:
    """Return what calls that were not refused were answered, in their order."""
    found: dict[str, list[Any]] = {}
    for one in world.calls:
        if one.status == OK:
            found.setdefault(mark_of(world, one.api, one.arguments), []).append(one.body)
    return found


def _done(goal: Goal, world: World, replies: dict[str, list[Any]]) -> tuple[Any] | None:
    """Return the answer of a goal whose calls were all made; its changes are then used up.

    What was read first counts: a later change may have altered what a question asked for.
    """
    steps, sent, used = goal.atom.steps(goal.slots), None, []
    try:
        while True:
            call = steps.send(sent)
            mark = mark_of(world, call.api, call.arguments)
            if not replies.get(mark):
                return None
            sent = replies[mark][0]
            if world.suite.apis[call.api].changes:
                used.append(mark)
    except StopIteration as end:
        for mark in used:
            del replies[mark][0]
        return (end.value,)


def _carried_on(
    goal: Goal, fork: World, replies: dict[str, list[Any]], calls: list[Call], needed: bool
) -> Any:
    """Add the calls that reach a goal, and make them; return its answer.

    Raises:
        ApiError: a service refuses one.
    """
    steps, sent = goal.atom.steps(goal.slots), None
    try:
        while True:
            call = steps.send(sent)
            mark = mark_of(fork, call.api, call.arguments)
            if fork.suite.apis[call.api].changes and replies.get(mark):
                sent = replies[mark].pop(0)
                continue
            before = fork.state.key()
            reply = fork.call(call.api, call.arguments, MAIN)
            if not reply.ok:
                raise ApiError(reply.status, str(reply))
            idle = fork.suite.apis[call.api].changes and fork.state.key() == before
            if not (needed and idle):
                calls.append(call)
            sent = reply.body
    except StopIteration as end:
        return end.value


def _without_known(world: World, calls: Sequence[Call]) -> list[Call]:
    """Leave out what was read already, since the last change and before the next one."""
    known: set[str] = set()
    for one in world.calls:
        if one.status != OK:
            continue
        if one.api in world.suite.apis and world.suite.apis[one.api].changes:
            known = set()
        else:
            known.add(mark_of(world, one.api, one.arguments))
    left: list[Call] = []
    for call in calls:
        if world.suite.apis[call.api].changes:
            known = set()
        if mark_of(world, call.api, call.arguments) not in known:
            left.append(call)
    return left


def mark_of(world: World, api: str, arguments: Mapping[str, Any]) -> str:
    """Return a call without defaults and free texts; calls of equal marks do the same."""
    app = world.suite.blueprints[api.partition(".")[0]] if "." in api else None
    free = {
        name
        for entity in (app.entities.values() if app else ())
        for name, column in entity.fields.items()
        if column.free
    }
    made = world.suite.apis.get(api)
    schemas = made.parameters["properties"] if made is not None else {}
    usual = {name: schema["default"] for name, schema in schemas.items() if "default" in schema}
    kept = {
        name: float(value) if type(value) is int else value  # 25 and 25.0 are one number
        for name, value in arguments.items()
        if name not in free | {"access_token"} and (name not in usual or value != usual[name])
    }
    return repr((api, sorted(kept.items())))
