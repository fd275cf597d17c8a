"""`palaestra play --player NAME`: a person plays for one player, and agents for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from palaestra.api.seating import Seat
from palaestra.core.agent import Agent
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.player_session import PlayerSession
from palaestra.core.session import Session
from palaestra.runtime.visible_text import visible

if TYPE_CHECKING:
    from palaestra.core.environment import Environment
    from palaestra.core.episode import Episode
    from palaestra.core.model import Model
    from palaestra.core.task import Task

FORM = "--player NAME for the person, and --player NAME=AGENT@MODEL for each other player"
PERSON = Seat("", "")


class Person(Agent):
    """Acts by what a person writes, line by line; leaves the game at the end of the input."""

    name, sees = "person", True

    def __init__(self, environment: Environment) -> None:
        """Read lines; `environment` answers the commands, as for a single player."""
        self._environment = environment

    async def run(self, session: Session) -> None:
        from palaestra.cli.play_command import answer, command_in, described, read_line

        assert session.observation is not None
        print(f"You are {visible(session.turn)}.\n\n{visible(session.observation.text)}")
        while not session.over:
            line = read_line()
            if line == "":
                continue
            if line is not None and isinstance(session, PlayerSession):
                await session.may_act.wait()  # the environment is in the state of this move
            command = "quit" if line is None else command_in(self._environment, line)
            if line is None or command == "quit":
                return
            if command is not None:
                print(visible(answer(self._environment, command)))
                continue
            print(visible(described(await session.act(line))))


def seats_of(options: Sequence[str], environment: str, players: Sequence[str]) -> dict[str, Seat]:
    """Return who plays for each player, in the order of the options.

    Raises:
        InputError: the environment has a single player, one of them does not exist, is named twice
            or has nobody to play for it, an agent or its model is missing, or no person plays.
    """
    if len(players) < 2:
        raise InputError(f"'{environment}' has a single player; leave out --player.")
    seats: dict[str, Seat] = {}
    for text in options:
        player, equals, played = text.partition("=")
        seat = Seat.parse("--player", player, played) if equals else PERSON
        if not player or (equals and not all(seat)):
            raise InputError(f"--player {text} names no agent with a model; give {FORM}.")
        if player not in players:
            raise UnknownName("player", player, players)
        if player in seats:
            raise InputError(f"--player names '{player}' twice; name each player once.")
        seats[player] = seat
    lacking = [player for player in players if player not in seats]
    if lacking:
        raise InputError(
            f"Nobody plays for {lacking[0]} in '{environment}'; add --player "
            f"{lacking[0]}=AGENT@MODEL, such as {lacking[0]}=direct@random."
        )
    if PERSON not in seats.values():
        raise InputError(
            f"No person plays; give --player {next(iter(seats))} alone, or evaluate the agents "
            "with `palaestra eval`."
        )
    return seats


def play_game(made: Environment, task: Task, seats: Mapping[str, Seat], rules: str) -> None:
    """Play one game, and print its rules and the result of each player.

    Raises:
        InputError: there is no such agent or model.
    """
    asyncio.run(_played(made, task, seats, rules))


async def _played(made: Environment, task: Task, seats: Mapping[str, Seat], rules: str) -> None:
    from palaestra.agents.players import Seats
    from palaestra.core.episode import Key
    from palaestra.rollout.guarded_environment import LocalEnvironment

    agents = {player: _agent(player, seat, made) for player, seat in seats.items()}
    environment = LocalEnvironment(made)
    async with AsyncExitStack() as held:
        models: dict[str, Model] = {}
        for player, seat in seats.items():
            if seat != PERSON:
                model = _model(seat, agents[player])
                held.push_async_callback(model.close)
                models[player] = model.for_environment(environment)
        print(rules)
        session = Session(Key("play", 0), task, environment, Seats(agents), models)
        _show(await session.run())


def _agent(player: str, seat: Seat, made: Environment) -> Agent:
    if seat == PERSON:
        return Person(made)
    from palaestra.agents.registry import make_agent

    agent = make_agent(seat.agent)
    if agent.several or agent.in_order:
        raise InputError(
            f"The agent '{agent.name}' cannot play for {player} alone; choose another one, "
            "such as direct or react."
        )
    return agent


def _model(seat: Seat, agent: Agent) -> Model:
    from palaestra.evaluation.running.evaluation_plan import CONTEXT
    from palaestra.evaluation.running.matrix import reply_tokens
    from palaestra.models.registry import load_model

    model = load_model(seat.model, agent, slots=2, context=CONTEXT, progress=print)
    if model.max_tokens is not None:  # else its server knows the limit
        model.max_tokens = reply_tokens(agent.name)
    return model


def _show(episode: Episode) -> None:
    from palaestra.evaluation.statistics.player_results import forfeit_reason

    if not episode.outcome.scored:
        print(
            f"\nThe game broke: {visible(str(episode.outcome))}. {visible(episode.outcome.detail)}"
        )
        return
    print("\nThe game is over.")
    for player, one in episode.players.items():
        why = f", forfeited ({forfeit_reason(one.outcome)})" if one.forfeited else ""
        print(visible(f"{player}: return {one.total:+g}, {one.turns} action(s){why}"))
