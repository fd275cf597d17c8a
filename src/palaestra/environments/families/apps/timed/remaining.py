"""The rest of a reference in a world in which time passes, for a task that somebody has begun.

The reference is run again with what the agent saw: each of its calls is answered as the latest such
call of the agent was, as long as the agent has made it. From there on it runs on a fork. Where that
does not solve the task, because the world has changed since or the agent went another way, it runs
on a fork from its beginning, without the changes that the agent has made already.
"""

from __future__ import annotations

from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.goal import MAIN, Call
from palaestra.environments.families.apps.composing.resuming import mark_of
from palaestra.environments.families.apps.composing.verifier import Wanted
from palaestra.environments.families.apps.world import OK, Called, World

Rest = tuple[list[Call], str | None]


def rest_in_time(world: World, task: Composition, ways: list[Wanted]) -> Rest | None:
    """Return the calls that solve the task from here, and the answer; None if nothing does."""
    return _run_on(world, task, ways, True) or _run_on(world, task, ways, False)


def _run_on(world: World, task: Composition, ways: list[Wanted], remembers: bool) -> Rest | None:
    """Return the rest of the reference if it solves the task.

    Args:
        world: as it is.
        task: what to do.
        ways: see `judged`.
        remembers: whether what was read and waited for counts as done, too.
    """
    past = [one for one in world.calls if one.status == OK and one.api in world.suite.apis]
    if not remembers:
        past = [one for one in past if world.suite.apis[one.api].changes]
    fork, at, calls = world.fork(), 0, []
    steps, sent = task.steps(), None
    try:
        while True:
            call = steps.send(sent)
            known = None if calls and remembers else _latest(world, past[at:], call)
            if known is not None:
                at, sent = at + known + 1, past[at + known].body
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


def _latest(world: World, past: list[Called], call: Call) -> int | None:
    """Return the number of the last call that does the same; None: it was not made."""
    mark = mark_of(world, call.api, call.arguments)
    found = [n for n, one in enumerate(past) if mark_of(world, one.api, one.arguments) == mark]
    return found[-1] if found else None
