"""`palaestra play`: a person acts in an environment, in the terminal or through a pipe."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from palaestra.core.environment import Action, Capability
from palaestra.core.errors import InputError
from palaestra.core.task import Split, parse_split
from palaestra.core.visible import visible

if TYPE_CHECKING:
    from palaestra.core.environment import Environment, Transition

EXAMPLE = "palaestra play --env babyai/GoToLocalS5N2"
COMMANDS = (
    "help says this again, hint what the expert would do, actions what can be said, quit ends"
)
NAMES = ("help", "hint", "actions", "quit")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", required=True, metavar="ID", help="see `palaestra list`")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which task of the split")
    parser.add_argument(
        "--split", help="train, validation or test (default: the first of them that has tasks)"
    )


def run(options: argparse.Namespace) -> int:
    from palaestra.environments.registry import make, tasks

    split = parse_split(options.split) if options.split else None
    if options.seed < 0:
        raise InputError(f"--seed {options.seed} numbers no task; give 0 or more.")
    world = make(options.env)
    try:
        known = tasks(options.env)
        split = split or next((each for each in Split if known.count(each) != 0), Split.TRAIN)
        task = known.task(split, options.seed)
        first = world.reset(task)
        print(visible(f"{options.env}, task {task.id}\n\n{world.instructions}\n({COMMANDS})\n"))
        print(visible(first.text))
        _play(world)
    finally:
        world.close()
    return 0


def _play(world: Environment) -> None:
    """Until the task ends, or the person leaves."""
    turns = 0
    rewards = dict.fromkeys(world.players, 0.0)
    while True:
        if len(world.players) > 1:
            print(f"It is the turn of {world.turn_of()}.")
        line = _read()
        command = "quit" if line is None else _command(world, line)
        if line is None or command == "quit":
            print(f"You left after {turns} action(s), {_earned(rewards)}.")
            return
        if command is not None:
            print(visible(_answer(world, command)))
            continue
        if not line:
            continue
        player = world.turn_of()
        transition = world.step(Action(line))
        turns += 1
        for name, reward in (transition.rewards or {player: transition.reward}).items():
            rewards[name] += reward
        print(visible(_told(transition)))
        if transition.terminated or transition.truncated:
            print(f"\n{_end(transition)} after {turns} action(s), {_earned(rewards)}.")
            return


def _earned(rewards: dict[str, float]) -> str:
    if len(rewards) == 1:
        return f"with a reward of {sum(rewards.values()):g}"
    return "with rewards of " + ", ".join(f"{reward:g} ({who})" for who, reward in rewards.items())


def _read() -> str | None:
    """The next line, or None at the end of the input."""
    if sys.stdin.isatty():
        print("> ", end="", flush=True)
    line = sys.stdin.readline()
    return line.strip() if line else None


def _command(world: Environment, line: str) -> str | None:
    """The command that a line gives; None where it is an action, as a world's own words are.

    With a colon before it, it is always a command.
    """
    if line.startswith(":"):
        return line[1:]
    if line not in NAMES:
        return None
    own = Capability.ADMISSIBLE in world.capabilities and line in world.admissible()
    return None if own else line


def _answer(world: Environment, command: str) -> str:
    if command == "help":
        return f"{world.instructions}\n({COMMANDS})"
    if command == "hint":
        if Capability.ORACLE not in world.capabilities:
            return "This environment has no expert to ask."
        actions = world.oracle()
        return f"The expert would say: {actions[0].text}" if actions else "The expert knows no way."
    if command == "actions":
        if Capability.ADMISSIBLE in world.capabilities:
            return "You can say: " + ", ".join(world.admissible())
        if world.tools:
            calls = [tool.signature for tool in world.tools]
            return "You can call:\n" + "\n".join(calls)
        return world.instructions
    return f"There is no command ':{command}'; {COMMANDS}."


def _told(transition: Transition) -> str:
    text = transition.observation.text
    if not transition.valid:
        text = f"(not understood) {text}"
    return f"{text}\n(reward {transition.reward:g})" if transition.reward else text


def _end(transition: Transition) -> str:
    if transition.success:
        return "Solved"
    return "Not solved: the task ended" if transition.terminated else "Out of steps"
