"""The rest of a reference, for a task that somebody has begun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.goal import MAIN, Call
from palaestra.environments.families.apps.composing.verifier import Wanted
from palaestra.environments.families.apps.world import Reply, World


def rest_of(
    world: World, task: Composition, ways: list[Wanted]
) -> tuple[list[Call], str | None] | None:
    """Return the calls that solve the task from here, and the answer; None if nothing does.

    The reference runs on a fork. A change that was made already is not made again: the reference is
    told what it was answered then.
    """
    fork = world.fork()
    made = Counter(_mark(world, one.api, one.arguments) for one in world.calls if one.body)
    bodies = {_mark(world, one.api, one.arguments): one.body for one in world.calls if one.body}
    calls: list[Call] = []
    try:
        steps, sent = task.steps(), None
        while True:
            call = steps.send(sent)
            mark = _mark(world, call.api, call.arguments)
            if made[mark] > 0:
                made[mark] -= 1
                sent = bodies[mark]
                continue
            reply: Reply = fork.call(call.api, call.arguments, MAIN)
            if not reply.ok:
                return None
            calls.append(call)
            sent = reply.body
    except StopIteration as end:
        answer = None if end.value is None else str(end.value)
        solved = judged(fork, ways, answer or "").success
        return (calls, answer) if solved else None
    except (IndexError, KeyError):  # what the reference looks for is gone
        return None
    finally:
        fork.close()


def _mark(world: World, api: str, arguments: Mapping[str, Any]) -> str:
    """Return a call without texts of free wording; calls of equal marks do the same."""
    app = world.suite.blueprints[api.partition(".")[0]] if "." in api else None
    free = {
        name
        for entity in (app.entities.values() if app else ())
        for name, column in entity.fields.items()
        if column.free
    }
    kept = {k: v for k, v in arguments.items() if k not in free | {"access_token"}}
    return repr((api, sorted(kept.items())))
