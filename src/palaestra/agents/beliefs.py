"""Beliefs about a partner: predict its next action, see what it does, and correct the belief.

Source: ProAgent (Zhang et al. 2024). Each turn the role "belief" says what the partner will do
(what a reasonable player would do in its place), and after it what the partner did. Two hypotheses
h explain the partner: it does what was said ("reason"), or what it has done most often so far
("habit"). After each of its actions a_t the belief is, by Bayes' rule,

    P(h | a_1 … a_t) ∝ P(h | a_1 … a_{t-1}) · (1 - ε if h predicted a_t, else ε)

with ε = `ERROR` and equal priors. The prediction of the likelier hypothesis (of equal ones, reason)
is shown to the model before it acts. The role "verifier" then checks the action against what is
seen and expected; an action that it rejects is asked for once more.
"""

from __future__ import annotations

from collections import Counter

from palaestra.agents.history import History
from palaestra.core.agent import Agent
from palaestra.core.message import Message, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.core.team_words import CHECK, LAST, NEXT, expected

ERROR = 0.2  # ε: how often the right hypothesis is wrong about one action
BELIEF, VERIFIER = "belief", "verifier"
OBJECTION = "That is not possible, or does not fit. Reply with another action."


class Belief:
    """Two hypotheses about a partner, and how likely each is."""

    def __init__(self) -> None:
        """Hold both for equally likely."""
        self.reason = 0.5  # P(reason); that of habit is the rest
        self._did: Counter[str] = Counter()

    @property
    def habit(self) -> str | None:
        """The partner's most frequent action, among equally frequent ones the first; or None."""
        return self._did.most_common(1)[0][0] if self._did else None

    def predicted(self, reasoned: str) -> str:
        """Return the expected action, where `reasoned` is the prediction of reason."""
        return self.habit if self.habit is not None and self.reason < 0.5 else reasoned

    def correct(self, reasoned: str, did: str) -> None:
        """Update by the partner's action; before its first one habit predicts nothing."""
        if self.habit is not None:
            by_reason = self.reason * (1 - ERROR if did == reasoned else ERROR)
            by_habit = (1 - self.reason) * (1 - ERROR if did == self.habit else ERROR)
            self.reason = by_reason / (by_reason + by_habit)
        self._did[did] += 1


class BeliefsAgent(Agent):
    """As `direct`, with a belief about a partner's next action, corrected by what it does."""

    name = "beliefs"
    roles = (BELIEF, VERIFIER)

    def __init__(self, *, partner: str, corrects: bool = True, checks: bool = True) -> None:
        """Expect actions of the player `partner`.

        With `corrects=false` reason is always believed; with `checks=false` no action is checked.
        """
        self.partner, self.corrects, self.checks = partner, corrects, checks

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        belief, seen = Belief(), session.observation.text
        reasoned = await self._ask(session, seen, NEXT.format(self.partner))
        history = History(session.instructions, self._with_belief(seen, belief, reasoned))
        while not session.over:
            reply = await self._checked(session, history)
            seen = (await session.act(reply.text.strip(), by=reply)).observation.text
            if not session.over:
                if self.corrects:
                    did = await self._ask(session, seen, LAST.format(self.partner))
                    belief.correct(reasoned, did)
                reasoned = await self._ask(session, seen, NEXT.format(self.partner))
                history.add(reply.message, self._with_belief(seen, belief, reasoned))

    async def _checked(self, session: Session, history: History) -> Generation:
        """Return a reply with an action, asked for once more if the verifier rejects it."""
        messages = list(history.messages)
        reply = await session.generate(messages)
        if not self.checks:
            return reply
        question = CHECK.format(" ".join(reply.text.split()))
        verdict = await self._ask(session, messages[-1].text, question, VERIFIER)
        if verdict.lower().startswith("no"):
            again: list[Message] = [*messages, reply.message, user(OBJECTION)]
            return await session.generate(again)
        return reply

    async def _ask(self, session: Session, seen: str, question: str, role: str = BELIEF) -> str:
        """Return the reply to a question about what is seen, in a conversation of its own."""
        asked = [system(session.instructions), user(f"{seen}\n{question}")]
        return (await session.generate(asked, role=role)).text.strip()

    def _with_belief(self, seen: str, belief: Belief, reasoned: str) -> str:
        return f"{seen}\n{expected(self.partner, belief.predicted(reasoned))}"
