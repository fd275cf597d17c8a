"""MCTS: Monte-Carlo tree search over the environment's actions; no model proposes them.

Each simulation descends the tree by `select`, adds one state, values it by `value`, and backs up
each player's return along its path. Then the most visited action is taken. In a game it plays
`seat`, and assumes that every other player maximises their own return (max^n); the models of their
roles play them.

Sources: Kocsis and Szepesvári 2006 (UCT); Silver et al. 2017 (PUCT, here with equal priors);
Niu et al. 2023 (LightZero) for components chosen by name across environments. The search runs in
the environment itself, so it foresees random events. Against an opponent who is part of the
environment, search in its form with all players (`openspiel/NAME:self`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Literal

from palaestra.agents.search.base import Count, Temperature
from palaestra.agents.search.playouts import SELECT, Returns, State, add, find_value, rewards_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Capability
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session
from palaestra.core.trial import Trial


class MctsAgent(Agent):
    """Runs `simulations` for each action of `seat`; models play the other players."""

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
        """Value states by `rollout` or `module:function`; play `seat`, else the first player."""
        self.simulations, self.explore, self.seat = simulations, explore, seat
        self.select, self.value = SELECT[select], find_value(value)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seat = self.seat or session.players[0]
        if seat not in session.players:
            known = ", ".join(session.players)
            raise InputError(f"seat={seat} is not a player here; give one of: {known}.")
        if Capability.ADMISSIBLE not in session.environment.capabilities:
            raise CapabilityMissing(
                f"'{session.task.environment}' lists no actions to search; use the agent 'lats', "
                "whose model proposes them."
            )
        conversations: dict[str, list[Message]] = {}
        seen = session.observation.text
        while not session.over:
            if session.turn == seat:
                action, reply = await self.best(session), None
            else:
                instructions = system(f"{session.instructions}\nYou are {session.turn}.")
                messages = conversations.setdefault(session.turn, [instructions])
                messages.append(user(seen))
                reply = await session.generate(messages, role=session.turn)
                action = reply.text
                messages.append(assistant(action))
            seen = (await session.act(action.strip(), by=reply)).observation.text

    async def best(self, session: Session) -> str:
        """Return the most visited action, of equals the one with the highest return.

        Without a budget for simulations, return a random action.
        """
        rng = random.Random(f"{session.seed} {len(session.steps)}")
        if session.tries_left == 0:
            return rng.choice(await session.environment.admissible())
        async with session.trial() as trial:
            root = await self._state(session, trial, rng, {})
            for _ in range(self.simulations):
                if session.tries_left == 0:
                    break
                await self._simulate(session, trial, root, rng)

        def tried(action: str) -> tuple[int, float]:
            return root.children[action].visits, root.children[action].worth[root.mover]

        return max(root.children, key=tried)

    async def _simulate(
        self, session: Session, trial: Trial, node: State, rng: random.Random
    ) -> None:
        path = [node]
        while node.point is not None and not node.untried:
            above = node
            node = max(above.children.values(), key=lambda c: self.select(above, c, self.explore))
            path.append(node)
        returns: defaultdict[str, float] = defaultdict(float)
        if node.point is not None:
            await trial.back(node.point)
            action = node.untried.pop()
            transition = await trial.act(action)
            child = await self._state(session, trial, rng, rewards_of(session, transition))
            node.children[action] = child
            path.append(child)
            if child.point is not None:
                add(returns, await self.value(session, trial, rng))
        for state in reversed(path):
            add(returns, state.gained)
            state.visits += 1
            add(state.worth, returns)

    async def _state(
        self, session: Session, trial: Trial, rng: random.Random, gained: Returns
    ) -> State:
        """Return the current state of the trial."""
        if trial.over:
            return State(None, "", [], gained)
        actions = list(await session.environment.admissible())
        rng.shuffle(actions)
        mover = trial.signals.turn or session.players[0]
        return State(await trial.save(), mover, actions, gained)
