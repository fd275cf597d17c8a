"""Layouts of the dialogue between a planner and robots, as team files for any number of robots.

`dmas:4` is decentral: the robots talk one after another until all accept, and the last one decides.
`hmas-1:4` is the same after a proposal of a central planner. `hmas-2:4`: the central planner
proposes, each robot answers it alone and at the same time, and it proposes again until all accept.
(The central layout, CMAS, needs no team: one planner.)

Source: Chen et al. 2023, "Scalable Multi-Robot Collaboration with Large Language Models:
Centralized or Decentralized Systems?".
"""

from __future__ import annotations

import re

from palaestra.core.errors import InputError

SOURCE = "Chen et al. 2023"
LAYOUTS = {
    "dmas": "N robots talk one after another until all accept, and the last one decides.",
    "hmas-1": "A central planner proposes, then N robots talk as in dmas.",
    "hmas-2": "A central planner proposes, N robots answer it alone, until all accept.",
}
ROBOTS = range(2, 33)
ROUNDS = 3  # of talk in a turn, at most
ROBOT = "Say the move of your own arm, or: accept."
CENTRAL = "Propose a joint plan; take the moves that robots say into account."


def team_of(name: str) -> str | None:
    """Return the TOML of a layout for a number of robots; None if the name is of no layout.

    Raises:
        InputError: the number is not in `ROBOTS`.
    """
    layout, colon, count = name.partition(":")
    if layout not in LAYOUTS or not colon:
        return None
    if re.fullmatch(r"[0-9]{1,3}", count) is None or int(count) not in ROBOTS:
        raise InputError(
            f"The team '{name}' needs a number of robots; write {layout}:{ROBOTS[0]} to "
            f"{layout}:{ROBOTS[-1]}."
        )
    robots = [f"robot{number}" for number in range(1, int(count) + 1)]
    names = ", ".join(f'"{robot}"' for robot in robots)
    members = [f'[members.{robot}]\ninstructions = "{ROBOT}"' for robot in robots]
    talk = f'[[stage]]\ndo = "talk"\nwho = [{names}]\ntimes = {ROUNDS}\nuntil = "accept"'
    one_by_one = f'{talk}\norder = "file"\n[[stage]]\ndo = "act"\nwho = ["{robots[-1]}"]'
    if layout == "dmas":
        return "\n".join([*members, one_by_one])
    members.insert(0, f'[members.central]\ninstructions = "{CENTRAL}"')
    propose = '[[stage]]\ndo = "propose"\nwho = ["central"]'
    if layout == "hmas-1":
        return "\n".join([*members, propose, one_by_one])
    edges = [f"[edges]\ncentral = [{names}]", *(f'{robot} = ["central"]' for robot in robots)]
    stages = f'{propose}\n{talk}\nback = 1\n[[stage]]\ndo = "count"'
    return "\n".join(['see = "neighbours"', *members, *edges, stages])
