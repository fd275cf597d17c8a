"""A model whose replies come from processes that register: a foreign member of a team.

Each reply is recorded like that of any model, without tokens, so an interrupted episode goes on
with the replies that were recorded, and asks nobody for them again.

Whether somebody is there for a free place of a team is known here, and asks no process: the reply
is the capability with which it registered. It is recorded too, so a resumed episode does not depend
on who is there then.
"""

from __future__ import annotations

import time

from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.formation_words import PLACE, REGISTER
from palaestra.core.message import Message
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.core.team_words import PASS
from palaestra.gateway.registration_desk import Desk
from palaestra.models.registry import REGISTERED


class RegisteredModel(Model):
    """Replies as the processes at a desk do."""

    name = REGISTERED
    max_tokens = None  # a process knows its own limit

    def __init__(self, desk: Desk, agent: Agent) -> None:
        """Ask the processes of that desk; the agent phrases what they are not asked for."""
        self._desk, self._agent = desk, agent

    def for_agent(self, agent: Agent) -> RegisteredModel:
        return RegisteredModel(self._desk, agent)

    async def generate(self, prompt: Prompt) -> Generation:
        """Return the reply of a process registered for `prompt.role`; raises like `Desk.ask`."""
        started = time.monotonic()
        content = {
            "role": prompt.role,
            "episode": prompt.program,
            "messages": [_written(message) for message in prompt.messages],
        }
        if prompt.messages[-1].text.endswith(PLACE):
            skills = self._desk.capability_of(prompt.role)
            reply = PASS if skills is None else f"{REGISTER}: {skills}"
            text = self._agent.phrase(Action(reply))
        else:
            text = await self._desk.ask(prompt.role, content)
        seconds = time.monotonic() - started
        return Generation(text, (), (), Finish.STOP, self.name, version=0, seconds=seconds)


def _written(message: Message) -> dict[str, object]:
    images = [image.url for image in message.images]
    return {
        "role": message.role,
        "content": message.text,
        **({"images": images} if images else {}),
    }
