"""`palaestra play --player NAME`: a person plays for one player, and agents for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from palaestra.api.seating import AgentAndModel
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import Key
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.player_session import PlayerSession
from palaestra.core.session import Session
from palaestra.runtime.visible_text import visible

if TYPE_CHECKING:
    from palaestra.core.environment import Environment, Transition
    from palaestra.core.episode import Episode
    from palaestra.core.model import Model
    from palaestra.core.task import Task

PLAYED = Key("play", 0)
FORM = "--player NAME for the person, and --player NAME=AGENT@MODEL for each other player"


@dataclass(frozen=True, slots=True)
class Seat:
    """Who plays for a player: an agent with a model, or the person."""

    player: str
    agent: str = ""  # empty: the person
    model: str = ""

    @classmethod
    def parse(cls, text: str) -> Seat:
        """Parse NAME, or NAME=AGENT@MODEL.

        Raises:
            InputError: the agent or the model is missing.
        """
        player, equals, played = text.partition("=")
        own = AgentAndModel.parse("--player", player, played) if equals else AgentAndModel("", "")
        if not player or (equals and not all(own)):
            raise InputError(f"--player {text} names no agent with a model; give {FORM}.")
        return cls(player, *own)


class Front(Protocol):
    """Where a person sees a game and acts: a terminal, or a page."""

    def begin(self, session: Session) -> None:
        """Show what the player sees first."""
        ...

    async def ask(self, session: Session) -> Action | None:
        """Return the person's next action; None: it leaves the game."""
        ...

    def show(self, transition: Transition) -> None:
        """Show what followed an action."""
        ...


class Person(Agent):
    """Acts as a person does at a front, and leaves the game with the person."""

    name, sees = "person", True

    def __init__(self, front: Front) -> None:
        self._front = front

    async def run(self, session: Session) -> None:
        self._front.begin(session)
        while not session.over:
            action = await self._front.ask(session)
            if action is None:
                return
            self._front.show(await session.act(action))


class Terminal:
    """The front in which a person writes line by line; the end of the input leaves the game."""

    def __init__(self, environment: Environment) -> None:
        """Read lines; `environment` answers the commands, as for a single player."""
        self._environment = environment

    def begin(self, session: Session) -> None:
        assert session.observation is not None
        print(f"You are {visible(session.turn)}.\n\n{visible(session.observation.text)}")

    async def ask(self, session: Session) -> Action | None:
        from palaestra.cli.play_command import answer, command_in, read_line

        while True:
            line = read_line()
            if line == "":
                continue
            if line is not None and isinstance(session, PlayerSession):
                await session.may_act.wait()  # the environment is in the state of this move
            command = "quit" if line is None else command_in(self._environment, line)
            if line is None or command == "quit":
                return None
            if command is None:
                return Action(line)
            print(visible(answer(self._environment, command)))

    def show(self, transition: Transition) -> None:
        from palaestra.cli.play_command import described

        print(visible(described(transition)))


def seats_of(options: Sequence[str], environment: str, players: Sequence[str]) -> list[Seat]:
    """Return who plays for each player.

    Raises:
        InputError: the environment has a single player, one of them does not exist, is named twice
            or has nobody to play for it, or no person plays.
    """
    if len(players) < 2:
        raise InputError(f"'{environment}' has a single player; leave out --player.")
    seats = [Seat.parse(text) for text in options]
    named = [seat.player for seat in seats]
    for player in named:
        if player not in players:
            raise UnknownName("player", player, players)
        if named.count(player) > 1:
            raise InputError(f"--player names '{player}' twice; name each player once.")
    lacking = [player for player in players if player not in named]
    if lacking:
        raise InputError(
            f"Nobody plays for {lacking[0]} in '{environment}'; add --player "
            f"{lacking[0]}=AGENT@MODEL, such as {lacking[0]}=direct@random."
        )
    if all(seat.agent for seat in seats):
        raise InputError(
            f"No person plays; give --player {named[0]} alone, or evaluate the agents with "
            "`palaestra eval`."
        )
    return seats


def play_game(made: Environment, task: Task, seats: Sequence[Seat], rules: str) -> None:
    """Play one game in the terminal, and print its rules and the result of each player.

    Raises:
        InputError: there is no such agent or model.
    """
    fronts = {seat.player: Terminal(made) for seat in seats if not seat.agent}
    episode = asyncio.run(play(made, task, seats, fronts, begun=lambda: print(rules)))
    print("", *results_of(episode), sep="\n")


async def play(
    made: Environment,
    task: Task,
    seats: Sequence[Seat],
    fronts: Mapping[str, Front],
    *,
    begun: Callable[[], None],
    seconds: float | None = None,
    key: Key = PLAYED,
) -> Episode:
    """Play one game, and return its record.

    Args:
        made: the environment.
        task: of the environment.
        seats: who plays for each player.
        fronts: of the persons, by player.
        begun: called once all models are ready.
        seconds: that each player has to decide, in all; None: any number.
        key: of the record.

    Raises:
        InputError: there is no such agent or model.
    """
    from palaestra.agents.players import Seats
    from palaestra.rollout.guarded_environment import LocalEnvironment

    agents = {
        seat.player: _agent(seat) if seat.agent else Person(fronts[seat.player]) for seat in seats
    }
    environment = LocalEnvironment(made)
    async with AsyncExitStack() as held:
        models: dict[str, Model] = {}
        for seat in seats:
            if seat.agent:
                model = _model(seat, agents[seat.player])
                held.push_async_callback(model.close)
                models[seat.player] = model.for_environment(environment)
        begun()
        alone = len(seats) == 1
        agent = agents[seats[0].player] if alone else Seats(agents)
        own, unlimited = Budget(seconds=seconds), Budget()
        session = Session(
            key,
            task,
            environment,
            agent,
            models,
            budget=own if alone else unlimited,
            player_budget=unlimited if alone else own,
        )
        return await session.run()


def results_of(episode: Episode) -> list[str]:
    """Return how a game ended, in lines: the result of each player."""
    from palaestra.evaluation.statistics.player_results import forfeit_reason

    if not episode.outcome.scored:
        why = f"{episode.outcome}. {episode.outcome.detail}"
        return [visible(f"The game broke: {why}")]
    lines = ["The game is over."]
    if not episode.players:
        lines.append(f"{episode.outcome}, reward {episode.reward:g}")
    for player, one in episode.players.items():
        why = f", forfeited ({forfeit_reason(one.outcome)})" if one.forfeited else ""
        lines.append(visible(f"{player}: return {one.total:+g}, {one.turns} action(s){why}"))
    return lines


def _agent(seat: Seat) -> Agent:
    from palaestra.agents.registry import make_agent

    agent = make_agent(seat.agent)
    if agent.several or agent.in_order:
        raise InputError(
            f"The agent '{agent.name}' cannot play for {seat.player} alone; choose another one, "
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
