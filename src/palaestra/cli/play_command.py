"""`palaestra play`: act in an environment yourself, in the terminal or through a pipe.

Of several players, one person plays all in turn, or some of them against agents (`--player`).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from palaestra.core.environment import Action, Capability
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import acting_in
from palaestra.core.task import Split, parse_split
from palaestra.runtime.visible_text import visible

if TYPE_CHECKING:
    from palaestra.core.environment import Environment, Transition
    from palaestra.core.task import Task

EXAMPLE = "palaestra play --env babyai/GoToLocalS5N2"
COMMANDS = (
    "help repeats this, hint shows the expert's next action, actions lists actions, quit ends"
)
NAMES = ("help", "hint", "actions", "quit")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", required=True, metavar="ID", help="see `palaestra list`")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="number of the task in the split"
    )
    parser.add_argument("--split", help="train, validation or test (default: the first with tasks)")
    parser.add_argument(
        "--player", action="append", default=[], metavar="NAME", dest="players",
        help="with several players: play for NAME, and let agents play for the others, each by "
        "--player NAME=AGENT@MODEL (repeatable; default: play for all of them in turn)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    from palaestra.environments.registry import make, tasks

    split = parse_split(options.split) if options.split else None
    if options.seed < 0:
        raise InputError(f"--seed {options.seed} is negative; give 0 or more.")
    environment = make(options.env)
    try:
        known = tasks(options.env)
        split = split or next((each for each in Split if known.count(each) != 0), Split.TRAIN)
        task = known.task(split, options.seed)
        if options.players:
            from palaestra.cli.play_game import play_game, seats_of

            seats = seats_of(options.players, options.env, environment.spec.players)
            play_game(environment, task, seats, _rules(options.env, task, environment))
            return 0
        first = environment.reset(task)
        print(_rules(options.env, task, environment))
        print(visible(first.text))
        _play(environment)
    finally:
        environment.close()
    return 0


def _rules(id: str, task: Task, environment: Environment) -> str:
    text = f"{id}, task {task.id}\n\n{environment.instructions}\n({COMMANDS})\n"
    return visible(text)


def _play(environment: Environment) -> None:
    """Play until the task ends or the player quits."""
    turns = 0
    rewards = dict.fromkeys(environment.spec.players, 0.0)
    while True:
        if len(environment.spec.players) > 1:
            print(f"It is {acting_in(environment)[0]}'s turn.")
        line = read_line()
        command = "quit" if line is None else command_in(environment, line)
        if line is None or command == "quit":
            print(f"You left after {turns} action(s), {_earned(rewards)}.")
            return
        if command is not None:
            print(visible(answer(environment, command)))
            continue
        if not line:
            continue
        player = acting_in(environment)[0]
        transition = environment.step(Action(line))
        turns += 1
        for name, reward in (transition.rewards or {player: transition.reward}).items():
            rewards[name] += reward
        print(visible(described(transition)))
        if transition.terminated or transition.truncated:
            end = _end(transition) if len(rewards) == 1 else "The game ended"
            print(f"\n{end} after {turns} action(s), {_earned(rewards)}.")
            return


def _earned(rewards: dict[str, float]) -> str:
    if len(rewards) == 1:
        return f"with a reward of {sum(rewards.values()):g}"
    return "with rewards of " + ", ".join(f"{reward:g} ({who})" for who, reward in rewards.items())


def read_line() -> str | None:
    """Return the next line, or None at the end of the input."""
    if sys.stdin.isatty():
        print("> ", end="", flush=True)
    line = sys.stdin.readline()
    return line.strip() if line else None


def command_in(environment: Environment, line: str) -> str | None:
    """Return the command in a line, or None if the line is an action.

    With a leading colon, it is always a command; else the environment's own actions come first.
    """
    if line.startswith(":"):
        return line[1:]
    if line not in NAMES:
        return None
    own = (
        Capability.ADMISSIBLE in environment.spec.capabilities and line in environment.admissible()
    )
    return None if own else line


def answer(environment: Environment, command: str) -> str:
    if command == "help":
        return f"{environment.instructions}\n({COMMANDS})"
    if command == "hint":
        if Capability.ORACLE not in environment.spec.capabilities:
            return "This environment has no expert."
        actions = environment.oracle()
        return (
            f"The expert's next action: {actions[0].text}" if actions else "The expert has no plan."
        )
    if command == "actions":
        if Capability.ADMISSIBLE in environment.spec.capabilities:
            return "Actions: " + ", ".join(environment.admissible())
        if environment.tools:
            calls = [tool.signature for tool in environment.tools]
            return "Tools:\n" + "\n".join(calls)
        return environment.instructions
    return f"There is no command ':{command}'; {COMMANDS}."


def described(transition: Transition) -> str:
    text = transition.observation.text
    if not transition.valid:
        text = f"(invalid action) {text}"
    return f"{text}\n(reward {transition.reward:g})" if transition.reward else text


def _end(transition: Transition) -> str:
    if transition.success:
        return "Solved"
    return "Not solved: the task ended" if transition.terminated else "Out of steps"
