"""Levels of TextWorld and their games, generated once per seed and then cached.

A game depends on its level and seed alone. It is compiled in a temporary folder of the cache and
then renamed, so a reader never sees a partial game. If several processes generate the same game,
the first result is kept and all use it.

Names of rooms and things come from TextWorld's "house" grammar. Room descriptions come from its
"basic" grammar ("There is an exit to the north."), which is a third as long as the house style.
Goals are one sentence and do not spell out the solution.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import textworld
from numpy.random import RandomState
from textworld.challenges.tw_coin_collector import coin_collector
from textworld.challenges.tw_cooking import cooking
from textworld.challenges.tw_treasure_hunter import treasure_hunter
from textworld.generator import (
    CouldNotCompileGameError,
    QuestGenerationError,
    compile_game,
    make_game,
)
from textworld.generator.text_generation import (
    assign_description_to_room,
    generate_instruction,
)
from textworld.generator.text_grammar import Grammar

from palaestra.core.errors import EnvironmentFault
from palaestra.core.paths import cache_folder

EDITION = 1  # part of the cache key; increase it whenever the text of the games changes
EXITS = re.compile(r"There is an exit to the \w+\.(?: There is an exit to the \w+\.)*")
ATTEMPTS = 20  # not every sampled map admits a quest of the wanted length
_MAKING = threading.Lock()  # the package parses with one parser for all threads


class Kind(StrEnum):
    """The package's generators of games."""

    COIN = "coin"  # walk through rooms to a coin (Yuan et al. 2018)
    TREASURE = "treasure"  # find one named thing; taking another one loses
    COOKING = "cooking"  # read a recipe, prepare it and eat (First TextWorld Problems)
    ROOMS = "rooms"  # a general game: containers, doors, keys, food


@dataclass(frozen=True, slots=True)
class Level:
    """A game's parameters, besides its seed."""

    kind: Kind
    settings: Mapping[str, int]
    commands: str  # the commands listed in the instructions


WALK = "go north, go south, go east, go west, take <thing>, look, inventory"
COOK = "examine <thing>, take <food> from <place>, prepare meal, eat meal, look, inventory"
GENERAL = (
    "go north/south/east/west, open/close/examine/take/drop/eat <thing>, "
    "take <thing> from <place>, put <thing> on <place>, insert <thing> into <place>, "
    "unlock/lock <thing> with <key>, look, inventory"
)

LEVELS: dict[str, Level] = {
    # 5 rooms in a row, the coin in the last one
    "coin-easy": Level(Kind.COIN, {"level": 5}, WALK),
    # 6, 8 and 10 rooms: a path of 3, 4 or 5, and a dead end off each room but the last
    "coin-medium-3": Level(Kind.COIN, {"level": 103}, WALK),
    "coin-medium-4": Level(Kind.COIN, {"level": 104}, WALK),
    "coin-medium": Level(Kind.COIN, {"level": 105}, WALK),
    # 30 rooms: a path of 10, and twice as many dead ends off it
    "coin-hard": Level(Kind.COIN, {"level": 210}, WALK),
    # one kitchen; one ingredient, already cut and cooked, to find among others
    "cooking-easy": Level(Kind.COOKING, {"recipe": 1, "take": 1, "go": 1, "recipe_seed": 0}, COOK),
    # 5 rooms, the path to the right thing takes 2 moves
    "treasure-easy": Level(Kind.TREASURE, {"level": 5}, WALK),
    # 3 rooms, at least 5 things, a solution of 4 commands
    "rooms": Level(Kind.ROOMS, {"rooms": 3, "objects": 5, "quest_length": 4}, GENERAL),
}


def story_file(level: Level, seed: int) -> Path:
    """Return the compiled game (`.z8`) of `seed`, with its description (`.json`) beside it.

    Raises:
        EnvironmentFault: the game could not be generated or compiled.
    """
    recipe = json.dumps([level.kind, dict(level.settings)], sort_keys=True)
    digest = hashlib.blake2b(recipe.encode(), digest_size=6).hexdigest()
    root = cache_folder() / "textworld" / f"{textworld.__version__}-{EDITION}"
    folder = root / f"{level.kind}-{digest}" / str(seed)
    if not folder.exists():
        _generate(level, seed, folder)
    return folder / "game.z8"


def _generate(level: Level, seed: int, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as made:
        with _MAKING:
            game, options = _make(level, seed)
        draft = Path(made) / "game"
        options.path = str(draft / "game.z8")
        try:
            compile_game(game, options)
        except (CouldNotCompileGameError, OSError) as error:
            raise EnvironmentFault(
                "reset", f"TextWorld could not compile the game of seed {seed}: {error}"
            ) from error
        (draft / "game.ni").unlink()
        try:
            os.rename(draft, folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise


def _make(level: Level, seed: int) -> tuple[textworld.Game, textworld.GameOptions]:
    for attempt in range(ATTEMPTS):
        digest = hashlib.blake2b(f"{seed}/{attempt}".encode(), digest_size=4).digest()
        options = textworld.GameOptions()
        options.seeds = int.from_bytes(digest)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings that the grammar runs out of names
                game = MAKERS[level.kind](level.settings, options)
        except (QuestGenerationError, ValueError):
            continue
        _simplify_descriptions(game)
        game.objective = GOALS[level.kind](game)
        return game, options
    raise EnvironmentFault("reset", f"TextWorld found no {level.kind} game for seed {seed}.")


def _simplify_descriptions(game: textworld.Game) -> None:
    grammar = _basic()
    for room in game.world.rooms:
        described = assign_description_to_room(room, game, grammar)
        game.infos[room.id].desc = EXITS.sub(_join_exits, described)


def _join_exits(found: re.Match[str]) -> str:
    *most, last = re.findall(r"to the (\w+)\.", found[0])
    if not most:
        return found[0]
    return f"There are exits to the {', '.join(most)} and {last}."


def _basic() -> Grammar:
    return Grammar({"theme": "basic"}, rng=RandomState(0))


# ── the kinds ────────────────────────────────────────────────────────────────


def _cooking(settings: Mapping[str, int], options: textworld.GameOptions) -> textworld.Game:
    return cooking.make({**settings, "split": None}, options)


def _rooms(settings: Mapping[str, int], options: textworld.GameOptions) -> textworld.Game:
    options.nb_rooms = settings["rooms"]
    options.nb_objects = settings["objects"]
    options.quest_length = settings["quest_length"]
    return make_game(options)


def _coin_goal(game: textworld.Game) -> str:
    return "Find the coin and take it."


def _treasure_goal(game: textworld.Game) -> str:
    """Name the thing to take, which is the portable variable of the quest's last action."""
    last = game.quests[0].win_events[0].actions[-1]
    portable = (v for v in last.variables if game.kb.types.is_descendant_of(v.type, "o"))
    return f"Find the {game.infos[next(portable).name].name} and take it. Take nothing else."


def _cooking_goal(game: textworld.Game) -> str:
    return "Examine the cookbook, make the meal of its recipe and eat it."


def _rooms_goal(game: textworld.Game) -> str:
    """State only the last action of the quest; the player must find the path to it."""
    last = game.quests[-1].win_events[0].actions[-1]
    text, _ = generate_instruction(last, _basic(), game, {})
    return text[0].upper() + text[1:]


MAKERS: dict[Kind, Callable[[Mapping[str, int], textworld.GameOptions], textworld.Game]] = {
    Kind.COIN: coin_collector.make,
    Kind.TREASURE: treasure_hunter.make,
    Kind.COOKING: _cooking,
    Kind.ROOMS: _rooms,
}
GOALS: dict[Kind, Callable[[textworld.Game], str]] = {
    Kind.COIN: _coin_goal,
    Kind.TREASURE: _treasure_goal,
    Kind.COOKING: _cooking_goal,
    Kind.ROOMS: _rooms_goal,
}
