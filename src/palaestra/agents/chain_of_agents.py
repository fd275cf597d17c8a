"""Chain-of-agents: one model speaks for a whole team in each reply, role by role, in tags.

Source: Chain-of-Agents (Li et al. 2025), whose agent foundation models learn the runs of a team of
agents as one trajectory, in which the model itself says which of its roles speaks next.

    <planner>
    1. turn left
    2. go forward
    </planner><action>turn left</action>

The rule of examples `flattened` makes such trajectories of the runs of other agents (`plan`,
`verify`, …). The last `<action>` is what is done; a reply without one is the action as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from palaestra.agents.history import History, Keep
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.session import Session

FORMAT = (
    "You are a team. In each reply, let the roles that are needed speak, each between its tags, "
    "such as <planner>…</planner>, and then act: <action>…</action>."
)
ACTION = "action"
_ACTION = re.compile(rf"<{ACTION}>(.*?)(?:</{ACTION}>|$)", re.DOTALL)


class ChainAgent(Agent):
    """Chain-of-agents: in each reply the roles of a team speak in tags, and one action follows."""

    name = "chain"

    def __init__(self, *, history: Keep = None) -> None:
        """Show the model all exchanges, or only the last `history`."""
        self.history = history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        first = session.observation.text
        history = History(opening(session.instructions), first, self.history)
        while not session.over:
            reply = await session.generate(history.messages)
            transition = await session.act(action_of(reply.text), by=reply)
            history.add(reply.message, transition.observation.text)

    def phrase(self, action: Action) -> str:
        return team_reply((), action.text)


def opening(instructions: str) -> str:
    """Return the system message: an environment's instructions, and the form of replies."""
    return f"{instructions}\n{FORMAT}"


def team_reply(said: Iterable[tuple[str, str]], action: str) -> str:
    """Return the reply in which roles say something, and an action follows.

    Args:
        said: (role, text), in order.
        action: what is done then.
    """
    return "".join(f"<{role}>{text}</{role}>" for role, text in (*said, (ACTION, action)))


def action_of(reply: str) -> str:
    """Return the action of a reply."""
    found = _ACTION.findall(reply)
    return (found[-1] if found else reply).strip()
