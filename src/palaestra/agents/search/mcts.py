"""MCTS: Monte-Carlo tree search over the world's own actions; no model proposes them.

Each simulation goes down the tree by `select`, adds one state, values it by `value`, and hands up
to all states on its way what each player got. Then the most visited action is done. In a game it
plays `seat` and takes every other player to search for their own good, too (max^n); who really
plays them are the models of their roles.

Sources: Kocsis and Szepesvári 2006 (UCT); Silver et al. 2017 (PUCT, here with equal priors);
Niu et al. 2023 (LightZero) for parts that are exchanged by name over unlike worlds. The world
itself is the model of the world, so where chance decides, it is foreseen; against an opponent who
is part of a world, search in its form with all seats (`openspiel/NAME:self`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Literal

from palaestra.agents.search.playouts import SELECT, Returns, State, add, find_value, got
from palaestra.agents.search.searching import Count, Temperature
from palaestra.core.agent import Agent
from palaestra.core.environment import Capability
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session
from palaestra.core.trial import Trial


class MctsAgent(Agent):
    """`simulations` for each action of `seat`; other players act by their models."""

    name = "mcts"
    several = True

    def __init__(
        self,
        *,
        simulations: Count = 64,
        explore: Temperature = 1.4,
        select: Literal["uct", "puct"] = "uct",
        value: str = "rollout",
        seat: str = "",
    ) -> None:
        """`value` is `rollout` or `module:function`; `seat` a player, the first one if unset."""
        self.simulations, self.explore, self.seat = simulations, explore, seat
        self.select, self.value = SELECT[select], find_value(value)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seat = self.seat or session.players[0]
        if seat not in session.players:
            known = ", ".join(session.players)
            raise InputError(f"seat={seat} is no player of this world; give one of: {known}.")
        if Capability.ADMISSIBLE not in session.world.capabilities:
            raise CapabilityMissing(
                f"'{session.task.environment}' lists no actions, so there is nothing to search "
                "among; use the agent 'lats', whose model proposes them."
            )
        talks: dict[str, list[Message]] = {}
        seen = session.observation.text
        while not session.over:
            if session.turn == seat:
                action, reply = await self.best(session), None
            else:
                told = system(f"{session.instructions}\nYou are {session.turn}.")
                talk = talks.setdefault(session.turn, [told])
                talk.append(user(seen))
                reply = await session.generate(talk, role=session.turn)
                action = reply.text
                talk.append(assistant(action))
            seen = (await session.act(action.strip(), by=reply)).observation.text

    async def best(self, session: Session) -> str:
        """The action that was tried most, of equals the one that got most; else chance."""
        dice = random.Random(f"{session.seed} {len(session.steps)}")
        if session.tries_left == 0:
            return dice.choice(await session.world.admissible())
        async with session.trial() as trial:
            root = await self._state(session, trial, dice, {})
            for _ in range(self.simulations):
                if session.tries_left == 0:
                    break
                await self._simulate(session, trial, root, dice)

        def tried(action: str) -> tuple[int, float]:
            return root.children[action].visits, root.children[action].worth[root.mover]

        return max(root.children, key=tried)

    async def _simulate(
        self, session: Session, trial: Trial, node: State, dice: random.Random
    ) -> None:
        way = [node]
        while node.point is not None and not node.untried:
            above = node
            node = max(above.children.values(), key=lambda c: self.select(above, c, self.explore))
            way.append(node)
        returns: defaultdict[str, float] = defaultdict(float)
        if node.point is not None:
            await trial.back(node.point)
            action = node.untried.pop()
            transition = await trial.act(action)
            child = await self._state(session, trial, dice, got(session, transition))
            node.children[action] = child
            way.append(child)
            if child.point is not None:
                add(returns, await self.value(session, trial, dice))
        for state in reversed(way):
            add(returns, state.got)
            state.visits += 1
            add(state.worth, returns)

    async def _state(
        self, session: Session, trial: Trial, dice: random.Random, found: Returns
    ) -> State:
        """The state in which the trial stands."""
        if trial.over:
            return State(None, "", [], found)
        actions = list(await session.world.admissible())
        dice.shuffle(actions)
        mover = trial.signals.turn or session.players[0]
        return State(await trial.save(), mover, actions, found)
