"""The rest of a reference in a world in which time passes, for a task that somebody has begun.

The reference is run again with what the agent saw, as long as the agent has made its calls: each is
answered as the agent's first such call was, after those before it. From there on it runs on a fork.
Where that does not solve the task, since the world has changed meanwhile, each is answered as the
latest such call; and at last only changes are, and all else is looked up again.
"""

from __future__ import annotations

from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.goal import MAIN, Call
from palaestra.environments.families.apps.composing.resuming import mark_of
from palaestra.environments.families.apps.composing.verifier import Wanted
from palaestra.environments.families.apps.world import OK, Called, World

FIRST, LATEST = 0, -1
Rest = tuple[list[Call], str | None]


def rest_in_time(world: World, task: Composition, ways: list[Wanted]) -> Rest | None:
    """Return the calls that solve the task from here, and the answer; None if nothing does."""
    past = [one for one in world.calls if one.status == OK and one.api in world.suite.apis]
    changes = [one for one in past if world.suite.apis[one.api].changes]
    for known, which in ((past, FIRST), (past, LATEST), (changes, FIRST)):
        if (found := _run_on(world, task, ways, known, which)) is not None:
            return found
    return None


def _run_on(
    world: World, task: Composition, ways: list[Wanted], past: list[Called], which: int
) -> Rest | None:
    """Return the rest of the reference if it solves the task.

    Args:
        world: as it is.
        task: what to do.
        ways: see `judged`.
        past: what was called, and need not be called again.
        which: of several such calls, `FIRST` or `LATEST`.
    """
    fork, calls = world.fork(), list[Call]()
    marks = [mark_of(world, one.api, one.arguments) for one in past]
    at = 0  # all before it is used up
    steps, sent = task.steps(), None
    try:
        while True:
            call = steps.send(sent)
            mark = mark_of(world, call.api, call.arguments)
            if same := [n for n in range(at, len(past)) if marks[n] == mark]:
                at, sent = same[which] + 1, past[same[which]].body
                continue
            reply = fork.call(call.api, call.arguments, MAIN)
            if not reply.ok:
                return None
            calls.append(call)
            sent = reply.body
    except StopIteration as end:
        said = None if end.value is None else str(end.value)
        return (calls, said) if judged(fork, ways, said or "").success else None
    except (IndexError, KeyError):  # what the reference looks for is gone
        return None
    finally:
        fork.close()
