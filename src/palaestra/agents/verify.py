"""Verification before the action and after it: is it what was meant, and has it done its work?

Source: D-Artemis (Mi et al. 2025). Before each action, the role "verifier" checks it against the
thought behind it and against what is seen (thought-action consistency); an action that it objects
to is corrected. After each step it reflects on what has changed, and that is told along with the
observation. Both look at one step alone, in a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.react import FORMAT, ReActAgent, action_of
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session

ROLE = "verifier"
CHECK = (
    "You check an action before it is taken: does it follow from the thought, and does it fit what "
    'is seen? Begin your reply with "Yes" or "No", and say why.'
)
STATUS = (
    "You look at a step that was just taken: has it changed what it should, and what follows for "
    "the next one? Reply in one sentence."
)
OBJECTION = "Before that is done, an objection: {}\nAnswer again in the same two lines."
REFLECTION = "\nOn the last step: "


class VerifyAgent(ReActAgent):
    """As `react`, with a verifier before and after each action."""

    name = "verify"
    sees = False
    roles = (ROLE,)

    def __init__(
        self,
        *,
        again: Annotated[int, Field(ge=0)] = 1,
        before: bool = True,
        after: bool = True,
        history: Keep = None,
    ) -> None:
        """With the two checks or one of them; an action is corrected at most `again` times."""
        super().__init__(history=history)
        self.again, self.before, self.after = again, before, after

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        past = History(f"{session.instructions}\n{FORMAT}", seen, self.history)
        while not session.over:
            reply = await self._checked(session, past.messages, seen)
            transition = await session.act(action_of(reply.text), by=reply)
            before, seen = seen, transition.observation.text
            if self.after and not session.over:
                step = f"Seen: {before}\n{reply.text}\nSeen then: {seen}"
                asked = [system(f"{session.instructions}\n{STATUS}"), user(step)]
                seen += REFLECTION + (await session.generate(asked, role=ROLE)).text.strip()
            past.add(reply.text, seen)

    async def _checked(self, session: Session, told: Sequence[Message], seen: str) -> Generation:
        """A thought and an action, after the verifier's objections."""
        talk = list(told)
        reply = await session.generate(talk)
        for _ in range(self.again if self.before else 0):
            asked = [
                system(f"{session.instructions}\n{CHECK}"),
                user(f"Seen: {seen}\n{reply.text}"),
            ]
            verdict = (await session.generate(asked, role=ROLE)).text.strip()
            if not verdict.lower().startswith("no"):
                break
            talk += [assistant(reply.text), user(OBJECTION.format(verdict))]
            reply = await session.generate(talk)
        return reply

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """A model that knows the way objects to whatever differs from what it knows."""
        right = actions[0].text
        if messages[0].content.endswith(CHECK):
            fits = action_of(messages[-1].content) == right
            return "Yes." if fits else f"No: {right} is the next step."
        if messages[0].content.endswith(STATUS):
            return f"Next comes {right}."
        return self.phrase(actions[0])
