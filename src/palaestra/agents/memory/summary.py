"""Summary: when the prompt exceeds its budget, the model's own summary replaces the history.

Source: Lu et al. 2025 (SUPO). The summary is a call in the role "memory" over the conversation so
far. The conversation then restarts with the task, the summary and the newest exchange, as a new
branch of the message graph. Actions and summaries are both trained on the episode's outcome.

No prompt exceeds the budget by a single token: space for the question for a summary is reserved.
Where the budget cannot hold the task, a summary and one observation, the episode ends with the
agent's error "budget".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import CUT
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.memory_agent import ROLE, RememberingAgent, ask
from palaestra.core.environment import Action
from palaestra.core.errors import AgentFault
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session

Size = Annotated[int, Field(ge=1)]
ASK = (
    "Stop here. What you have seen and done so far will be forgotten. Write down what you still "
    "have to know: what was done, what was found, what is left to do."
)
HEAD = "Your notes:"


class Summary(Memory):
    """A chat that restarts with a summary when its budget is used up."""

    def __init__(self, instructions: str, first: str, budget: int, length: int) -> None:
        self._instructions, self._first = instructions, first
        self._opening, self._start = first, first  # `_opening` ends with the observation `_start`
        self._budget, self._length = budget, length
        self._exchanges: list[tuple[str, str]] = []  # since the last summary

    @property
    def messages(self) -> list[Message]:
        return self._conversation(len(self._exchanges))

    def add(self, reply: str, observation: str) -> None:
        self._exchanges.append((reply, observation))

    async def update(self, session: Session) -> None:
        """Summarise all but the newest exchange, if the next prompt would be too long.

        Raises:
            AgentFault: the budget is too small for this environment.
        """
        if self._fits(session):
            return
        if self._exchanges:
            newest = self._exchanges[-1]
            before = self._exchanges[-2][1] if len(self._exchanges) > 1 else self._start
            notes = await ask(session, self._question(len(self._exchanges) - 1), self._length)
            for start, kept in ((before, [newest]), (newest[1], [])):
                self._start, self._exchanges = start, kept
                self._opening = f"{self._first}{CUT}{HEAD}\n{notes}{CUT}{start}"
                if self._fits(session):
                    return
        raise AgentFault(
            "budget",
            f"{self._budget} tokens do not hold the instructions, the task, a summary and one "
            "observation; give a larger budget, or a shorter length",
        )

    def _fits(self, session: Session) -> bool:
        """Return whether the next prompt, and the one that summarises it, fit the budget."""
        whole = self._question(len(self._exchanges))
        lengths = session.prompt_length(self.messages), session.prompt_length(whole, role=ROLE)
        return max(lengths) <= self._budget

    def _conversation(self, count: int) -> list[Message]:
        found = [system(self._instructions), user(self._opening)]
        for reply, observation in self._exchanges[:count]:
            found += [assistant(reply), user(observation)]
        return found

    def _question(self, count: int) -> list[Message]:
        *messages, last = self._conversation(count)
        return [*messages, user(f"{last.text}\n\n{ASK}")]


class SummaryAgent(RememberingAgent):
    """A chat that summarises itself to stay within a token budget (SUPO, Lu et al. 2025)."""

    name = "summary"
    roles = (ROLE,)

    def __init__(self, *, budget: Size = 1024, length: Size = 64, thoughts: bool = False) -> None:
        """Limit prompts to `budget` tokens and summaries to `length`."""
        self.budget, self.length, self.thoughts = budget, length, thoughts

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        instructions, first = self.instructions(session), session.observation.text
        return Summary(instructions, first, self.budget, self.length)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[-1].text.endswith(ASK):
            return "Left to do: " + ", ".join(action.text for action in actions[:4])
        return super().answer(messages, actions)
