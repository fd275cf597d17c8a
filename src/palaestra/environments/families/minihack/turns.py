"""Typical numbers of actions for MiniHack's levels, listed so that no level must be compiled.

Each is half of the package's limit, clipped to 20 to 500. Tests compare them with the package.
"""

from __future__ import annotations

UNKNOWN = 125  # for skill levels, which have the default limit, and for levels not listed here

LEVELS = {
    20: (
        "MultiRoom-N2 MultiRoom-N2-Extreme MultiRoom-N2-Lava MultiRoom-N2-LavaMonsters "
        "MultiRoom-N2-Locked MultiRoom-N2-Monster"
    ),
    25: "WoD-Easy-Full WoD-Easy-Restricted",
    50: "Room-5x5 Room-Dark-5x5 Room-Monster-5x5 Room-Random-5x5 Room-Trap-5x5 Room-Ultimate-5x5",
    60: (
        "MultiRoom-N4 MultiRoom-N4-Extreme MultiRoom-N4-Lava MultiRoom-N4-LavaMonsters "
        "MultiRoom-N4-Locked MultiRoom-N4-Monster"
    ),
    75: "WoD-Medium-Full WoD-Medium-Restricted",
    100: (
        "HideNSeek HideNSeek-Lava HideNSeek-Mapped KeyRoom-Dark-S5 KeyRoom-Fixed-S5 "
        "KeyRoom-S5 MazeWalk-9x9 MazeWalk-Mapped-9x9"
    ),
    120: (
        "MultiRoom-N6 MultiRoom-N6-Extreme MultiRoom-N6-Lava MultiRoom-N6-Lava-OpenDoor "
        "MultiRoom-N6-LavaMonsters MultiRoom-N6-Locked MultiRoom-N6-Monster "
        "MultiRoom-N6-OpenDoor"
    ),
    150: (
        "Room-15x15 Room-Dark-15x15 Room-Monster-15x15 Room-Random-15x15 Room-Trap-15x15 "
        "Room-Ultimate-15x15"
    ),
    175: (
        "CorridorBattle CorridorBattle-Dark River River-Lava River-Monster "
        "River-MonsterLava River-Narrow"
    ),
    180: "MultiRoom-N10 MultiRoom-N10-Lava MultiRoom-N10-Lava-OpenDoor MultiRoom-N10-OpenDoor",
    200: (
        "HideNSeek-Big KeyRoom-Dark-S15 KeyRoom-S15 Labyrinth-Small "
        "LavaCross-Levitate-Full LavaCross-Levitate-Potion-Inv-Full "
        "LavaCross-Levitate-Potion-Inv-Restricted LavaCross-Levitate-Potion-Pickup-Full "
        "LavaCross-Levitate-Potion-Pickup-Restricted LavaCross-Levitate-Restricted "
        "LavaCross-Levitate-Ring-Inv-Full LavaCross-Levitate-Ring-Inv-Restricted "
        "LavaCross-Levitate-Ring-Pickup-Full LavaCross-Levitate-Ring-Pickup-Restricted "
        "Levitate-Random-Full WoD-Hard-Full WoD-Hard-Restricted"
    ),
    250: (
        "ExploreMaze-Easy ExploreMaze-Easy-Mapped ExploreMaze-Hard "
        "ExploreMaze-Hard-Mapped Quest-Easy"
    ),
    500: (
        "Corridor-R2 Corridor-R3 Corridor-R5 Labyrinth-Big MazeWalk-15x15 MazeWalk-45x19 "
        "MazeWalk-Mapped-15x15 MazeWalk-Mapped-45x19 Memento-F2 Memento-F4 "
        "Memento-Short-F2 Quest-Hard Quest-Medium Sokoban1a Sokoban1b Sokoban2a Sokoban2b "
        "Sokoban3a Sokoban3b Sokoban4a Sokoban4b WoD-Pro-Full WoD-Pro-Restricted"
    ),
}

TURNS = {name: turns for turns, names in LEVELS.items() for name in names.split()}
