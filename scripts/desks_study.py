"""Service desks: one side against two, and constant behaviour on twins; tables of Markdown.

    python scripts/desks_study.py [--tasks 200] [--only services,support]

First table: an expert at the telephone desk that errs, on the same tasks of the test split, alone
with a ticket and the tools of both sides (`telephone:solo`) and with a user who acts on a phone of
their own (`telephone`). At each step it does a random action with the stated probability: a call
with random arguments, or, with a user, sometimes a message that leads nowhere. Where its error
cannot be undone it has failed. Intervals are Wilson's, at 95 %; that of the difference is paired
over tasks. Second table: what behaviour that is always the same passes, on twins and other tasks.
Third: users who do not keep to their part, once in each conversation, with an agent that makes no
mistake (`:users`): how often the audit says so, and how often the agent would be blamed. With
`--only` the last two are made, of these desks.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Iterator, Sequence
from statistics import mean

from palaestra.core.environment import Action
from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split
from palaestra.environments.families.desk import expert
from palaestra.environments.families.desk.drawing import DESKS
from palaestra.environments.families.desk.environment import Desk
from palaestra.environments.families.desk.user import Act
from palaestra.evaluation.statistics.intervals import paired_difference, wilson

Behaviour = Callable[[Desk, int], Iterator[Action]]
"""What is done in an environment that is at the beginning of the task of that number."""

ERRORS = (0.0, 0.02, 0.05, 0.1, 0.2)
SOLO, DUAL = "telephone:solo", "telephone"
LONGEST = 100  # actions of an episode
CONSTANT = {
    "says nothing of use": "How can I help you?",
    "always refuses": "I am sorry, I cannot do that.",
    "always hands over": "{}_hand_over(reason='I pass this on.')",
}


def erring(name: str, number: int, error: float) -> tuple[bool, int]:
    """Return whether an expert that errs solves a task, and its number of actions."""
    env = begun(name, number)
    rng = random.Random(f"errors {number} {error}")
    for turn in range(1, LONGEST + 1):
        wrong = rng.random() < error
        plan = [env.sample_action(rng)] if wrong else env.oracle()
        if not plan:
            return False, turn
        step = env.step(plan[0])
        if step.terminated:
            return step.success, turn
    return False, LONGEST


def begun(name: str, number: int) -> Desk:
    """Return the environment at the beginning of a task of the test split."""
    env = Desk(name)
    env.reset(Desk.tasks(f"desk/{name}").task(Split.TEST, number))
    return env


def always(act: Behaviour, name: str, number: int) -> tuple[bool, bool]:
    """Return whether a behaviour solves a task, and whether the task is a twin."""
    env = begun(name, number)
    for _, action in zip(range(LONGEST), act(env, number), strict=False):
        step = env.step(action)
        if step.terminated:
            return step.success, env.drawn.kind.twin
    return False, env.drawn.kind.twin


def constant(words: str) -> Behaviour:
    """Return the behaviour of somebody who always says or calls the same."""

    def act(env: Desk, number: int) -> Iterator[Action]:
        while True:
            yield Action(words.format(env.drawn.desk.name))

    return act


def does_what_is_asked(env: Desk, number: int) -> Iterator[Action]:
    """Do what is right for the one of two twins that the policy permits, whichever this is."""
    twin = begun(env.drawn.desk.name, number if env.drawn.permitted else number ^ 1)
    yield from twin.oracle()


def chance(env: Desk, number: int) -> Iterator[Action]:
    """Do random actions."""
    rng = random.Random(number)
    while True:
        yield env.sample_action(rng)


def answers_wrong(env: Desk) -> str | None:
    """Return an answer in which the last digit of each value is another one."""
    if env.intent.act is not Act.ANSWER:
        return None
    said = env.user.words(env.memory, env.intent, env.turns)
    return re.sub(r"\d\b", lambda found: str((int(found[0]) + 1) % 10), said)


def tells_all(env: Desk) -> str | None:
    """Return an opening that tells what nobody has asked for."""
    if env.intent.act is not Act.OPEN:
        return None
    said = env.user.words(env.memory, env.intent, env.turns)
    return f"{said} {' '.join(env.drawn.scenario.known.values())}"


def uses_its_phone(env: Desk) -> str | None:
    """Return a restart of the phone instead of an answer."""
    has_one = env.drawn.desk.gestures and env.intent.act is Act.ANSWER
    return "phone_restart()" if has_one else None


def instead_of(act: Act, words: str) -> Callable[[Desk], str | None]:
    """Return the lie that says something else where the part wants one act."""
    return lambda env: words if env.intent.act is act else None


LIES: dict[str, Callable[[Desk], str | None]] = {
    "answers with a wrong digit": answers_wrong,
    "tells everything at once": tells_all,
    "never answers": instead_of(Act.ANSWER, "I do not want to say that."),
    "uses its phone unasked": uses_its_phone,
    "hangs up when asked": instead_of(Act.ANSWER, "hang_up()"),
    "hangs up before a yes": instead_of(Act.CONFIRM, "hang_up()"),
    "declines what it wants": instead_of(Act.CONFIRM, "No, do not."),
    "forgets to change its mind": instead_of(Act.CHANGE, "Yes, go ahead."),
    "says yes only when asked again": instead_of(Act.CONFIRM, "Hm."),
}
"""Ways not to keep to a part: what is said instead; None where there is no occasion."""
LASTING = ("never answers",)  # lies that are told at each occasion


def lied_to(lie: str, desk: str, number: int) -> str | None:
    """Return how a conversation with such a user ends: `solved`, `user` or `agent`, who is blamed.

    None: there was no occasion for the lie.
    """
    env, lied = begun(f"{desk}:users", number), False
    for _ in range(LONGEST):
        agents = env.acting() == ("agent",)
        action = expert.agent_action(env) if agents else expert.user_action(env)
        said = None if agents or (lied and lie not in LASTING) else LIES[lie](env)
        lied |= said is not None
        try:
            step = env.step(action if said is None else Action(said))
        except EnvironmentFault as fault:
            return fault.kind
        if step.terminated:
            return ("solved" if step.success else "agent") if lied else None
    return "agent" if lied else None


def users_who_lie(desks: Sequence[str], count: int) -> None:
    print("| the user | conversations | solved | fault of the user | failure of the agent |")
    print("| --- | --- | --- | --- | --- |")
    for lie in LIES:
        ends = [lied_to(lie, desk, number) for desk in desks for number in range(count)]
        told = [end for end in ends if end is not None]
        if not told:
            continue  # users at these desks have no occasion for it
        cells = [share([end == wanted for end in told]) for wanted in ("solved", "user", "agent")]
        print(f"| {lie} | {len(told)} | {' | '.join(cells)} |", flush=True)


def share(found: list[bool]) -> str:
    interval = wilson(sum(found), len(found))
    return f"{mean(found):.2f} ({interval.low:.2f} to {interval.high:.2f})"


def one_side_against_two(count: int) -> None:
    print("| error | solo | actions | dual control | actions | difference, paired |")
    print("| --- | --- | --- | --- | --- | --- |")
    for error in ERRORS:
        solo, dual = ([erring(n, k, error) for k in range(count)] for n in (SOLO, DUAL))
        gap = paired_difference(
            [float(success) for success, _ in dual], [float(success) for success, _ in solo]
        )
        cells = [
            cell
            for made in (solo, dual)
            for cell in (
                share([success for success, _ in made]),
                f"{mean(turns for _, turns in made):.1f}",
            )
        ]
        between = f"{gap.mean:+.2f} ({gap.low:+.2f} to {gap.high:+.2f})"
        print(f"| {error} | {' | '.join(cells)} | {between} |", flush=True)


def always_the_same(desks: Sequence[str], count: int) -> None:
    print("| desk | behaviour | twins | other tasks |")
    print("| --- | --- | --- | --- |")
    behaviours = {name: constant(words) for name, words in CONSTANT.items()}
    behaviours |= {"always does what is asked": does_what_is_asked, "chance": chance}
    for desk in desks:
        for name, act in behaviours.items():
            found = [always(act, desk, number) for number in range(count)]
            twins = [success for success, twin in found if twin]
            others = [success for success, twin in found if not twin]
            print(f"| {desk} | {name} | {share(twins)} | {share(others)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--only", default="", help="desks, separated by commas")
    options = parser.parse_args()
    desks = options.only.split(",") if options.only else list(DESKS)
    if unknown := sorted({*desks} - {*DESKS}):
        parser.error(f"--only: '{unknown[0]}' is unknown; choose from {', '.join(DESKS)}")
    if not options.only:
        one_side_against_two(options.tasks)
        print()
    always_the_same(desks, options.tasks)
    print()
    users_who_lie(desks, options.tasks // 4)


if __name__ == "__main__":
    main()
