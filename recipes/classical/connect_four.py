"""Connect Four by tree search: how much a simulation is worth, and against whom.

    python recipes/classical/connect_four.py FOLDER --games 24

After LightZero (Niu et al. 2023), with the true model of the game and random playouts: the agent
`mcts` plays one seat of `openspiel/connect_four:self`, each seat in half of the games, against

    first      the first legal move
    random     any legal move
    minimax    alpha-beta, as the package has it, `DEPTH` moves deep, with no idea of what lies
               beyond; of equal moves the first, after a first move by chance
    bot        the package's own Monte-Carlo tree search with 100 simulations a move

Lines are added to FOLDER/games.jsonl; what is done is not done again. The table has won, drawn and
lost games, and the share won with its Wilson interval of 95 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pyspiel
from open_spiel.python.algorithms.minimax import alpha_beta_search

from palaestra.agents.registry import make_agent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Key
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.openspiel.opponents import MCTS, RANDOM, opponent
from palaestra.environments.snapshots import opened
from palaestra.evaluation.statistics.intervals import wilson
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.guarded_environment import LocalEnvironment

GAME = "connect_four"
ID = f"openspiel/{GAME}:self"
DEPTH = 4
PLAYERS = {
    "first": lambda state, dice: state.legal_actions()[0],
    "random": opponent(RANDOM, GAME),
    "minimax": lambda state, dice: minimax(state, dice),
    "bot": opponent(MCTS, GAME),
}


def minimax(state: Any, dice: random.Random) -> int:
    """The package's alpha-beta search; the first move of a game by chance, so games differ."""
    if state.move_number() < 2:
        return int(dice.choice(state.legal_actions()))
    mine = state.current_player()
    _, action = alpha_beta_search(
        state.get_game(), state, lambda state: 0, DEPTH, maximizing_player_id=mine
    )
    return int(action)


class Player(Model):
    """Plays by the state of the world that it is bound to."""

    def __init__(self, name: str, environment: AsyncEnvironment | None = None) -> None:
        self.name, self.renderer, self.environment = name, None, environment

    async def generate(self, prompt: Prompt) -> Generation:
        assert self.environment is not None
        saved = opened(await self.environment.snapshot(), ID, pyspiel.__version__)
        _task, _seat, written = saved.decode().split("\n", 2)
        _, state = pyspiel.deserialize_game_and_state(written)
        action = PLAYERS[self.name](state, random.Random(prompt.seed))
        return given_generation(state.action_to_string(action), prompt, self)


async def play(simulations: int, against: str, number: int, world: LocalEnvironment) -> float:
    """What the search got in one game: 1, 0 or -1."""
    seat = f"player{number % 2}"
    agent = make_agent(f"mcts?simulations={simulations}&seat={seat}")
    task = registry.tasks(ID).task(Split.TEST, number)
    key = Key(f"{simulations}/{against}", number)
    model = Player(against, world)
    episode = await Session(key, task, world, agent, {"agent": model}).run()
    assert episode.outcome.scored, episode.outcome
    return sum(step.transition.rewards[seat] for step in episode.steps)


def run(folder: Path, sizes: list[int], against: list[str], games: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "games.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    done = {tuple(json.loads(line)[:3]): json.loads(line)[3] for line in lines}
    world = LocalEnvironment(registry.make(ID))
    print("| against | simulations | won, drawn, lost | won % [95 %] |")
    print("| --- | --- | --- | --- |")
    for other in against:
        for size in sizes:
            for number in range(games):
                if (size, other, number) not in done:
                    got = asyncio.run(play(size, other, number, world))
                    done[size, other, number] = got
                    with path.open("a") as file:
                        file.write(json.dumps([size, other, number, got]) + "\n")
            results = [done[size, other, number] for number in range(games)]
            each = [results.count(got) for got in (1, 0, -1)]
            won = wilson(each[0], games)
            said = f"{100 * won.mean:.0f} [{100 * won.low:.0f}, {100 * won.high:.0f}]"
            print(f"| {other} | {size} | {', '.join(map(str, each))} | {said} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--games", type=int, default=24)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--against", nargs="+", choices=list(PLAYERS), default=list(PLAYERS))
    asked = parser.parse_args()
    run(asked.folder, asked.sizes, asked.against, asked.games)
