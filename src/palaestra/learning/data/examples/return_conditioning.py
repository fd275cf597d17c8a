"""Commands: how much to earn in how many turns, as text in the policy's prompt.

Source: upside-down RL (Schmidhuber 2019; Srivastava et al. 2019; Arulkumaran et al. 2022). What an
episode achieved becomes, in hindsight, the command that it obeyed; learning is supervised. The
idea is the authors'; the constants are proposals, not verified.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message, Text, ToolResult, reworded
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.example import Example, usable
from palaestra.learning.data.examples.rerendering import rerendered
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component

_WORDING = re.compile(r"(?:^|\n)Command: earn \S+ more within \d+ turns\.(?=\n|$)")


@dataclass(frozen=True, slots=True)
class Command:
    """The return to earn from here on, and the turns to earn it in."""

    wanted: float  # return still to be earned
    horizon: int  # turns to earn it in, at least 1

    def after(self, reward: float) -> Command:
        """Return the command at the next turn, once `reward` was earned."""
        return Command(self.wanted - reward, max(self.horizon - 1, 1))

    def __str__(self) -> str:
        wanted = round(self.wanted, 2) + 0.0  # no "-0"
        return f"Command: earn {wanted:g} more within {self.horizon} turns."


def hindsight(rewards: Sequence[float], start: int, end: int) -> Command:
    """Return the command that turns `start` to `end` (excluded) obeyed; rewards are per turn.

    Raises:
        InputError: not 0 <= start < end <= number of turns.
    """
    if not 0 <= start < end <= len(rewards):
        raise InputError(
            f"Turns {start} to {end} are not part of an episode of {len(rewards)} turns; give "
            "0 <= start < end <= turns."
        )
    return Command(sum(rewards[start:end]), end - start)


def sample_command(trajectories: Sequence[Trajectory], *, top: int = 25, seed: int = 0) -> Command:
    """Sample a command for the next rollout: the best trajectories' mean return, or a bit more.

    The wanted return is sampled between the mean of the `top` returns and one standard deviation
    (over n) above it; the horizon is their mean number of turns.

    Raises:
        InputError: there are no trajectories.
    """
    best = sorted(trajectories, key=lambda trajectory: trajectory.total, reverse=True)[:top]
    if not best:
        raise InputError("There are no trajectories to sample a command from; roll out first.")
    returns = [trajectory.total for trajectory in best]
    wanted = fmean(returns) + random.Random(seed).uniform(0.0, pstdev(returns))
    return Command(wanted, max(1, round(fmean(len(t.turns) for t in best))))


def with_command(messages: Sequence[Message], command: Command) -> tuple[Message, ...]:
    """Append `command` to the last message, in place of all earlier commands in the messages."""
    *before, last = (_without_command(message) for message in messages)
    said = [n for n, part in enumerate(last.parts) if isinstance(part, Text | ToolResult)]
    if not said:
        return (*before, Message(last.role, (Text(str(command)), *last.parts)))
    part = last.parts[said[-1]]
    assert isinstance(part, Text | ToolResult)
    stated = replace(part, text=f"{part.text}\n{command}")
    parts = (*last.parts[: said[-1]], stated, *last.parts[said[-1] + 1 :])
    return (*before, Message(last.role, parts))


def _without_command(message: Message) -> Message:
    return reworded(message, lambda text: _WORDING.sub("", text))


@component(
    Kind.EXAMPLES,
    "commands",
    source="Schmidhuber 2019 (upside-down RL)",
    status=Status.EXPERIMENTAL,
    needs=[Need.COMMAND],
)
def commanded(
    episodes: Sequence[Episode], policy: str, renderer: Renderer, shaping: Shaping
) -> list[Example]:
    """Take all episodes, good or bad, each turn under the command that the rest of it obeyed.

    Args:
        episodes: of any tasks; those without a valid result are left out. Commands that were in
            their prompts are replaced.
        policy: whose replies are imitated.
        renderer: of the policy; prompts are rendered again, replies stay as recorded.
        shaping: the rewards that the commands count.
    """
    return [
        Example(row)
        for episode in usable(episodes, policy)
        for row in _relabelled(episode, policy, renderer, shaping)
    ]


def _relabelled(episode: Episode, policy: str, renderer: Renderer, shaping: Shaping) -> list[Row]:
    trajectory = shaping.trajectory(episode, policy)
    rewards = trajectory.rewards
    turns = enumerate(trajectory.turns)
    obeyed = {turn.call: hindsight(rewards, k, len(rewards)) for k, turn in turns}

    def edit(call: Call) -> Sequence[Message]:
        command = obeyed.get(call.index)
        return with_command(call.messages, command) if command else call.messages

    return rerendered(episode, policy, renderer, edit)
