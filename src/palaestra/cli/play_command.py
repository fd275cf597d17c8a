"""`palaestra play`: act in an environment yourself, in the terminal, through a pipe or on a page.

Of several players, one person plays all in turn, or some of them against agents (`--player`).
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
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
SECONDS = 1800.0  # that a person on a page has to decide, in all
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
    parser.add_argument(
        "--web", action="store_true",
        help="play on a local page: each person gets a link of its own (default: the terminal)",
    )  # fmt: skip
    parser.add_argument(
        "--player-seconds", type=float, metavar="S",
        help=f"with --web: seconds that each player has to decide, in all; who needs more forfeits "
        f"(default: {SECONDS:g})",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=int, metavar="N",
        help="with --web or --own-browser: of the page (default: any free one)",
    )  # fmt: skip
    parser.add_argument(
        "--own-browser", action="store_true",
        help="do the task on its very page in a browser of your own, and type the answer here "
        "(environments whose tasks are on a page, such as challenges/all)",
    )  # fmt: skip
    parser.add_argument(
        "--run", metavar="FOLDER",
        help="with --own-browser: record the episode here, in a new run or one of earlier plays",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    from palaestra.environments.registry import make, tasks

    split = parse_split(options.split) if options.split else None
    if options.seed < 0:
        raise InputError(f"--seed {options.seed} is negative; give 0 or more.")
    _check(options)
    seconds = SECONDS if options.player_seconds is None else options.player_seconds
    if not 0 < seconds < math.inf:
        raise InputError(f"--player-seconds {seconds:g} is no time to decide; give more than 0.")
    environment = make(options.env)
    try:
        known = tasks(options.env)
        split = split or next((each for each in Split if known.count(each) != 0), Split.TRAIN)
        task = known.task(split, options.seed)
        if options.own_browser:
            from palaestra.cli.own_browser import play_in_own_browser

            folder = Path(options.run) if options.run else None
            play_in_own_browser(environment, task, port=options.port or 0, run=folder)
            return 0
        if options.web or options.players:
            from palaestra.cli.play_game import Seat, play_game, seats_of

            players = environment.spec.players
            seats = [Seat(player) for player in players]
            if options.players:
                seats = seats_of(options.players, options.env, players)
            if options.web:
                from palaestra.cli.play_web import play_on_web

                port = options.port or 0
                play_on_web(environment, task, seats, seconds=seconds, port=port)
                return 0
            play_game(environment, task, seats, _rules(options.env, task, environment))
            return 0
        first = environment.reset(task)
        print(_rules(options.env, task, environment))
        print(visible(first.text))
        _play(environment)
    finally:
        environment.close()
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that would have no effect; raises InputError."""
    if not options.web and options.player_seconds is not None:
        raise InputError("--player-seconds needs --web; add it, or leave it out.")
    if not options.web and not options.own_browser and options.port is not None:
        raise InputError("--port needs --web or --own-browser; add one, or leave it out.")
    if options.own_browser and (options.web or options.players):
        raise InputError("--own-browser is for one person alone; leave out --web and --player.")
    if options.run and not options.own_browser:
        raise InputError("--run needs --own-browser; add it, or leave --run out.")


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
