"""The direct agent: each reply of the model is the action, or a few actions, one per line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.session import Session

REFLECTION = "That was a mistake. I take another way from here."
ANSWER = "ok."  # the message after a reflection; Agent-R's release (Yuan et al. 2025) uses it too


class DirectAgent(Agent):
    """A chat: the instructions, then observations and actions in turn.

    With `actions` above 1, a reply may be several lines, each of which is an action (action chunks,
    Kim et al. 2025, OpenVLA-OFT). They are taken one after the other, up to one that is invalid or
    ends the episode; the model then reads all that was observed. All of these steps are the
    reply's (`Step.call`), and so are their rewards.
    """

    name = "direct"
    sees = True

    def __init__(
        self,
        *,
        history: Keep = None,
        first: bool = True,
        reflects: bool = False,
        actions: Annotated[int, Field(ge=1)] = 1,
    ) -> None:
        """Show all exchanges, or only the last `history`; take up to `actions` of each reply.

        The first observation stays in prompts that drop exchanges, because it states the task;
        `first=false` is for environments that state it in each one, such as `gymnasium-goals`.
        With `reflects`, a reply that is the sentence `REFLECTION` is no action: it is answered
        with `ANSWER` and takes no turn, unless the reply before it was one as well. So policies
        that learned journeys or splices can notice a mistake.
        """
        if not first and history is None:
            raise InputError(
                "first=false has no effect on a prompt with all exchanges; set history=0, say."
            )
        self.history, self.first = history, first
        self.reflects, self.actions = reflects, actions

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        opening = self.opening(session.instructions)
        history = History(opening, session.observation.text, self.history, keep_first=self.first)
        history.add_images(session.observation)
        reflected = False
        while not session.over:
            reply = await session.generate(history.messages)
            text = reply.text.strip()
            reflected = self.reflects and text == REFLECTION and not reflected
            if reflected:
                history.add(reply.message, ANSWER)
                continue
            seen = []
            for action in self._proposed(text):
                transition = await session.act(action, by=reply)
                seen.append(transition.observation.text)
                if not transition.valid or session.over:
                    break
            history.add(reply.message, "\n".join(seen))
            history.add_images(transition.observation)

    def opening(self, instructions: str) -> str:
        """Return the system message."""
        if self.actions == 1:
            return instructions
        return f"{instructions}\nReply with up to {self.actions} actions, one per line."

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        return "\n".join(self.phrase(action) for action in actions[: self.actions])

    def _proposed(self, text: str) -> list[str]:
        """Return the actions of a reply, at least one."""
        if self.actions == 1:
            return [text]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[: self.actions] if lines else [""]
