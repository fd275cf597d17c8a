"""Verification before and after each action: does it fit the thought, and did it work?

Source: D-Artemis (Mi et al. 2025). Before each action, the role "verifier" checks it against its
thought and the observation (thought-action consistency). An action that it rejects is corrected.
After each step it reflects on what has changed; the reflection is appended to the observation.
Both calls see one step only, in a separate conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.react import FORMAT, ReActAgent, action_of
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
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
        """Check before or after each action, or both; correct an action at most `again` times."""
        super().__init__(history=history)
        self.again, self.before, self.after = again, before, after

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        history = History(f"{session.instructions}\n{FORMAT}", seen, self.history)
        while not session.over:
            reply = await self._checked(session, history.messages, seen)
            transition = await session.act(action_of(reply.text), by=reply)
            before, seen = seen, transition.observation.text
            if self.after and not session.over:
                step = f"Seen: {before}\n{reply.text}\nSeen then: {seen}"
                asked = [system(f"{session.instructions}\n{STATUS}"), user(step)]
                seen += REFLECTION + (await session.generate(asked, role=ROLE)).text.strip()
            history.add(reply.message, seen)

    async def _checked(self, session: Session, prompt: Sequence[Message], seen: str) -> Generation:
        """Return a reply with a thought and an action, corrected by the verifier."""
        messages = list(prompt)
        reply = await session.generate(messages)
        for _ in range(self.again if self.before else 0):
            asked = [
                system(f"{session.instructions}\n{CHECK}"),
                user(f"Seen: {seen}\n{reply.text}"),
            ]
            verdict = (await session.generate(asked, role=ROLE)).text.strip()
            if not verdict.lower().startswith("no"):
                break
            messages += [reply.message, user(OBJECTION.format(verdict))]
            reply = await session.generate(messages)
        return reply

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """Reject an action that differs from the plan's; approve it otherwise."""
        right = actions[0].text
        if messages[0].text.endswith(CHECK):
            fits = action_of(messages[-1].text) == right
            return "Yes." if fits else f"No: {right} is the next step."
        if messages[0].text.endswith(STATUS):
            return f"Next comes {right}."
        return self.phrase(actions[0])
