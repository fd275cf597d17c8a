"""The verdict on a task: by the verifier of apps, from the rows that sites hold in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from palaestra.environments.families.apps.composing.verifier import Judge, Ran, Verdict
from palaestra.environments.families.apps.state import Change
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import Deed, SiteTask, comparable


def verdict(world: SiteWorld, task: SiteTask, answer: str | None) -> Verdict:
    """Return the verdict on a world as it is.

    Args:
        world: of the task.
        task: what is wanted.
        answer: what was said at the end; None before the end, and to give up.
    """
    judge, wanted = Judge(world.columns), _changes(task.deeds)
    found = comparable(world.changes(), wanted)
    ran = Ran(answer=task.answer if task.possible else None)
    way = judge.wanted(wanted, ran, task.mentions)
    return judge.verdict(found, answer, [way])


def is_solved(found: Verdict, task: SiteTask, answer: str | None) -> bool:
    """Return whether a task that ended so is solved; an impossible one by giving up."""
    return found.success and (answer is not None) == task.possible


def left(world: SiteWorld, task: SiteTask) -> tuple[Deed, ...] | None:
    """Return the deeds that are still to do; None if rows changed that must not."""
    judge, wanted = Judge(world.columns), _changes(task.deeds)
    found = Counter(judge.canonical(comparable(world.changes(), wanted)))
    todo = []
    for deed in task.deeds:
        rows = Counter(judge.canonical(deed.changes))
        if rows and rows <= found:
            found -= rows
        else:
            todo.append(deed)
    return None if found else tuple(todo)


def _changes(deeds: Sequence[Deed]) -> list[Change]:
    return [change for deed in deeds for change in deed.changes]
