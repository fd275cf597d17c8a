"""PettingZoo's two interfaces to an environment: `AECEnv`, and `ParallelEnv` for rounds.

Observations and actions are text. An observation is a dictionary around its text, because
PettingZoo's tests of an interface ask for the type of an array, except within a dictionary. Its
games have no number of actions: which moves there are depends on the state, and is in the text.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Dict, Text
from pettingzoo import AECEnv, ParallelEnv

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.rare_capabilities import acting_in, observed_by, sample_action
from palaestra.core.task import Split, parse_split
from palaestra.environments import registry

SAMPLED = 100  # the most characters of a sampled text
SEEDS = 2**31


class AnyText(Text):
    """The space of all texts; samples are short."""

    def __init__(self) -> None:
        super().__init__(SAMPLED, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class Moves(AnyText):
    """The actions of a player: any text. Samples are valid moves of the player that is due."""

    def __init__(self, seating: Seating) -> None:
        super().__init__()
        self._seating = seating

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a valid move, if the environment can sample one, else any text."""
        rng = random.Random(int(self.np_random.integers(SEEDS)))
        try:
            return sample_action(self._seating.environment, rng).text
        except CapabilityMissing:
            return super().sample(mask, probability)


class Seating:
    """An environment with its players and what each of them sees."""

    def __init__(self, id: str) -> None:
        if registry.spec(id).images:
            raise InputError(f"'{id}' shows images, which text does not hold; choose another one.")
        self.environment, self._tasks = registry.make(id), registry.tasks(id)
        self.players = list(self.environment.spec.players)
        self.observations = {player: Dict({"text": AnyText()}) for player in self.players}
        self.moves = {player: Moves(self) for player in self.players}
        self.over = False
        self._next = 0  # the task after a reset without a seed
        self._shown, self._reader = "", self.players[0]  # the last observation, and whose it is

    def start(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Start a task of the split in the options; by default, of the training tasks."""
        split = parse_split((options or {}).get("split", Split.TRAIN))
        index = self._next if seed is None else seed
        self._next, self.over = index + 1, False
        self._shown = self.environment.reset(self._tasks.task(split, index)).text
        self._reader = self.acting()[0]

    def acting(self) -> tuple[str, ...]:
        """Return the players that act next, the one whose move is due first; none at the end."""
        return () if self.over else acting_in(self.environment)

    def step(self, text: str) -> Transition:
        """Take the move of the player that is due."""
        mover = self.acting()[0]
        transition = self.environment.step(Action(text))
        self.over = transition.terminated or transition.truncated
        self._shown = transition.observation.text
        self._reader = mover if self.over or not transition.valid else self.acting()[0]
        return transition

    def observation(self, player: str) -> dict[str, str]:
        """Return what a player sees now."""
        if player == self._reader:
            return {"text": self._shown}
        return {"text": observed_by(self.environment, player).text}

    def rewards(self, transition: Transition, mover: str) -> dict[str, float]:
        """Return the rewards of all players."""
        given = transition.rewards or {mover: transition.reward}
        return {player: given.get(player, 0.0) for player in self.players}


class Seated:
    """What both interfaces have in common."""

    def __init__(self, id: str) -> None:
        self.metadata: dict[str, Any] = {"name": id, "render_modes": []}
        self.render_mode = None
        self._seating = Seating(id)
        self.possible_agents = list(self._seating.players)
        self.agents: list[str] = []  # until the reset

    @property
    def instructions(self) -> str:
        """The rules, and how to act."""
        return self._seating.environment.instructions

    def observation_space(self, agent: str) -> Dict:
        return self._seating.observations[agent]

    def action_space(self, agent: str) -> Moves:
        return self._seating.moves[agent]

    def close(self) -> None:
        self._seating.environment.close()


class TextAEC(Seated, AECEnv[str, dict[str, str], str]):  # type: ignore[misc]
    """An environment whose players act one after another, in the order of their moves."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start training task number `seed`, or the next one; see `to_pettingzoo`."""
        self._seating.start(seed, options)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = self._seating.acting()[0]

    def observe(self, agent: str) -> dict[str, str]:
        return self._seating.observation(agent)

    def step(self, action: str) -> None:
        """Take the move of `agent_selection`; None for an agent whose episode is over."""
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[mover] = 0.0
        taken = self._seating.step(action)
        self.rewards = self._seating.rewards(taken, mover)
        self._accumulate_rewards()
        self.terminations = dict.fromkeys(self.agents, taken.terminated)
        self.truncations = dict.fromkeys(self.agents, taken.truncated)
        self.infos = {agent: {"success": taken.success} for agent in self.agents}
        self.infos[mover] |= {**taken.info, "valid": taken.valid}
        if not self._seating.over:
            self.agent_selection = self._seating.acting()[0]


class TextParallel(Seated, ParallelEnv[str, dict[str, str], str]):  # type: ignore[misc]
    """An environment in rounds: one step takes the moves of all players that act at once.

    Where players take turns, a round is the move of one. A step ends early at an action that is no
    move, as one that is not understood: the player sees why and, like all who have not moved yet,
    acts in the next step.
    """

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, Any]]]:
        """Start training task number `seed`, or the next one; see `to_pettingzoo`."""
        self._seating.start(seed, options)
        self.agents = list(self.possible_agents)
        return self._views(), self._infos()

    def step(
        self, actions: dict[str, str]
    ) -> tuple[
        dict[str, dict[str, str]],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Take the moves of the players that act; those of others are ignored.

        Raises:
            InputError: a player that acts has no action, or the episode is over.
        """
        seating = self._seating
        if not self.agents:
            raise InputError("The episode is over, or none has begun; call reset.")
        if missing := [player for player in seating.acting() if player not in actions]:
            raise InputError(f"{missing[0]} acts now, and has no action; give one for each player.")
        notes: dict[str, dict[str, Any]] = {player: {} for player in self.agents}
        rewards = dict.fromkeys(self.agents, 0.0)
        for mover in seating.acting():
            taken = seating.step(actions[mover])
            for player, reward in seating.rewards(taken, mover).items():
                rewards[player] += reward
            notes[mover] = {**taken.info, "valid": taken.valid}
            if not taken.valid or seating.over or seating.acting()[0] == mover:
                break
        for player, note in self._infos().items():
            notes[player] |= {**note, "success": taken.success}
        terminated = dict.fromkeys(self.agents, taken.terminated)
        truncated = dict.fromkeys(self.agents, taken.truncated)
        seen = self._views()
        if seating.over:
            self.agents = []
        return seen, rewards, terminated, truncated, notes

    def _views(self) -> dict[str, dict[str, str]]:
        return {player: self._seating.observation(player) for player in self.agents}

    def _infos(self) -> dict[str, dict[str, Any]]:
        acting = self._seating.acting()
        return {player: {"acts": player in acting} for player in self.agents}
