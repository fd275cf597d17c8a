"""The model judge: any model, asked with a rubric, whose answer is read strictly.

It reads the whole case, cut in its middle where it is too long, and replies greedily, so the same
case gives the same verdict.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from palaestra.core.errors import ContextTooLong, InfrastructureFault
from palaestra.core.message import Message, system, user
from palaestra.core.model import Generation, Model, Prompt, Sampling
from palaestra.evaluation.judges.case import Case, told
from palaestra.evaluation.judges.rubric import SOLVED, Rubric, choice_in, reason_in
from palaestra.evaluation.judges.verdict import Choice, Cost, Judge, Preference, Verdict

TELL = (
    "You judge what an agent did in a world. You are given the task and the record of what it did "
    "and saw. Judge only by what the record shows, not by what the agent claims."
)
PAIR = (
    "Two agents worked on the same task. Which of them came closer to what the task asks?\n"
    "Answer with one line, exactly so:\nBetter: A, or Better: B, or Better: equal"
)
LONGEST = 6_000  # characters of a record; turns in its middle are left out beyond


class ModelJudge(Judge):
    """A model with a rubric."""

    def __init__(
        self,
        model: Model,
        rubric: Rubric = SOLVED,
        *,
        name: str = "",
        tokens: int = 96,
        longest: int = LONGEST,
    ) -> None:
        """A judge that asks `model`.

        Args:
            model: one that reads; experts and chance only know worlds.
            rubric: what is asked.
            name: of the judge; `model:` and the model's name by default.
            tokens: most tokens of a reply.
            longest: most characters of a record.
        """
        self.name = name or f"model:{model.name}"
        self.model, self._rubric, self._longest = model, rubric, longest
        self._sampling = Sampling(temperature=0.0, max_tokens=tokens)

    @property
    def rule(self) -> str:
        return f"{self.model.name}\n{TELL}\n{self._rubric.form}\n{self._sampling}\n{self._longest}"

    async def judge(self, case: Case) -> Verdict:
        """The weighted share of criteria that hold; no verdict on a reply in another form."""
        record = told(case, self._longest)
        try:
            reply, cost = await asked(self.model, [
                system(TELL), user(f"{record}\n{self._rubric.form}"),
            ], self._sampling)  # fmt: skip
        except (ContextTooLong, InfrastructureFault) as why:
            return self.verdict(None, f"the model gave no answer: {why}")
        try:
            value = self._rubric.value(reply.text)
        except ValueError as why:
            return self.verdict(None, f"not in the form: {why}: {reply.text[:200]!r}", cost)
        return self.verdict(value, reason_in(reply.text), cost)

    async def prefer(self, a: Case, b: Case) -> Preference:
        """Both cases in one question, in this order."""
        half = self._longest // 2
        both = f"Agent A:\n{told(a, half)}\nAgent B:\n{told(b, half)}\n{PAIR}"
        try:
            reply, cost = await asked(self.model, [system(TELL), user(both)], self._sampling)
        except (ContextTooLong, InfrastructureFault):
            return Preference(Choice.NONE)
        return Preference(choice_in(reply.text), cost)


async def asked(
    model: Model, messages: Sequence[Message], sampling: Sampling
) -> tuple[Generation, Cost]:
    """One reply of a model to a conversation of its own, and what it cost.

    Raises:
        ContextTooLong: the conversation leaves no room to answer.
        InfrastructureFault: the model broke or could not be reached.
    """
    tokens = tuple(model.renderer.start(messages)) if model.renderer else None
    started = time.monotonic()
    with model.participant():
        reply = await model.generate(Prompt(list(messages), tokens, sampling, seed=0))
    read = reply.prompt_tokens or len(tokens or ())
    return reply, Cost(1, read, len(reply.tokens), 0, time.monotonic() - started)
