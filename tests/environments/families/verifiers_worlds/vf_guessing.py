"""A guessing game: the engine runs in the environment and plays the user; without end."""

import itertools
import random
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["GuessingEnv", "GuessingTaskset"]


class GuessingData(vf.TaskData):
    """A row."""

    number: int


class GuessingTask(vf.Task[GuessingData]):
    """One game."""

    @vf.metric
    async def guesses(self, trace: vf.Trace) -> float:
        """How many there were."""
        return float(trace.num_turns)


class GuessingEnvConfig(vf.EnvConfig):
    """One player, with eight guesses at most."""

    player: vf.AgentConfig = vf.AgentConfig(max_turns=8)


class GuessingEnv(vf.Env[GuessingEnvConfig]):
    """Says whether a guess is too low or too high; nonsense loses."""

    async def run(self, task: GuessingTask, agents: vf.Agents) -> None:
        won = 0.0
        async with agents.player.interaction(task) as talk:
            segment = await talk.turn("Guess a number from 1 to 20.")
            while not segment.terminated:
                output = segment.last_reply
                if not output.isdigit():
                    break
                if int(output) == task.data.number:
                    won = 1.0
                    break
                low = int(output) < task.data.number
                segment = await talk.turn("Too low." if low else "Too high.")
        talk.trace.record_reward("won", won)


class GuessingTaskset(vf.Taskset[GuessingTask, vf.TasksetConfig]):
    """Games by their seeds."""

    INFINITE = True

    def load(self) -> Iterator[GuessingTask]:
        for seed in itertools.count():
            number = random.Random(seed).randint(1, 20)
            yield GuessingTask(GuessingData(prompt=None, number=number), self.config.task)
