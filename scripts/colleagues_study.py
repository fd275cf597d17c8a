"""Colleagues who do not keep to their part: is it found, and is the agent blamed? A Markdown table.

    python scripts/colleagues_study.py [--tasks 40]

Tasks of the test split of `office/easy:colleagues` and `office/permission:colleagues`, with an
agent that makes no mistake and a colleague who does what the program does, but once in each episode
something else (those that say "always": at each occasion). Episodes without an occasion are left
out. Intervals are Wilson's, at 95 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing

from palaestra.core.environment import Action
from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split
from palaestra.environments.families.desk.user import Act
from palaestra.environments.families.office.environment import COLLEAGUE, Office
from palaestra.evaluation.statistics.intervals import wilson

NAMES = ("easy:colleagues", "permission:colleagues")
SOLVED, FAULT, FAILURE = "solved", "fault", "failure"


def invents(env: Office) -> str | None:
    return "It is 48213." if env._part()[2].act is Act.ANSWER else None


def tells_all(env: Office) -> str | None:
    """Tell all that they know, where something is left that was not asked for."""
    colleague, _, intent = env._part()
    known = colleague.scenario.known.values()
    return f"I know {', '.join(known)}." if len(known) > len(intent.slots) else None


def instead_of(act: Act, said: str) -> Callable[[Office], str | None]:
    """Return a lie that is told where the program would do something."""
    return lambda env: said if env._part()[2].act is act else None


def confides(env: Office) -> str | None:
    """Tell a fact to somebody who is not entitled to it."""
    colleague, _, intent = env._part()
    if intent.act is not Act.WITHHOLD:
        return None
    return f"It is {colleague.facts[intent.output].value}."


def rejects(env: Office) -> str | None:
    call = env._part()[2].call
    if call is None or call.api != "repository.review_change":
        return None
    id = call.arguments["change_id"]
    return f'repository_review_change(change_id={id}, verdict="reject")'


LIES: dict[str, Callable[[Office], str | None]] = {
    "answers with another number": invents,
    "tells everything at once": tells_all,
    "tells somebody who is not entitled": confides,
    "never answers (always)": instead_of(Act.ANSWER, "I do not want to say that."),
    "says yes against their opinion": instead_of(Act.DENY, "Yes, go ahead."),
    "says no against their opinion": instead_of(Act.CONFIRM, "No, do not do that."),
    "rejects a change instead of approving it": rejects,
    "says that it is done, and does nothing (always)": instead_of(Act.DO, "I have done that."),
}


def lied_to(lie: str, name: str, number: int) -> str | None:
    """Return how an episode with that lie ends; None if there was no occasion for it."""
    with closing(Office(name)) as env:
        env.reset(Office.tasks(f"office/{name}").task(Split.TEST, number))
        lied = False
        try:
            while True:
                said = None
                if env.acting() == (COLLEAGUE,) and (not lied or "always" in lie):
                    said = LIES[lie](env)
                lied = lied or said is not None
                plan = env.oracle() if said is None else [Action(said)]
                step = env.step(plan[0] if plan else Action("finish()"))
                if step.terminated:
                    return (SOLVED if step.success else FAILURE) if lied else None
        except EnvironmentFault as fault:
            return FAULT if fault.kind == "user" else FAILURE


def share(found: list[str], kind: str) -> str:
    bounds = wilson(found.count(kind), len(found))
    return f"{bounds.mean:.2f} ({bounds.low:.2f} to {bounds.high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=40, help="of each of the two ids")
    count = parser.parse_args().tasks
    print("| the colleague | episodes | solved | fault of the colleague | failure of the agent |")
    print("| --- | --- | --- | --- | --- |")
    for lie in LIES:
        ends = (lied_to(lie, name, number) for name in NAMES for number in range(count))
        if found := [end for end in ends if end is not None]:
            parts = " | ".join(share(found, kind) for kind in (SOLVED, FAULT, FAILURE))
            print(f"| {lie} | {len(found)} | {parts} |", flush=True)


if __name__ == "__main__":
    main()
