"""The model judge: any model, prompted with a rubric, whose reply is parsed strictly.

The model reads the whole case: one that is too long loses its middle turns, or is read in
overlapping windows if the rubric says so (`Rubric.windows`). It is decoded greedily, so the same
case gets the same verdict.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.errors import ContextTooLong, InfrastructureFault
from palaestra.core.message import Message, system, user
from palaestra.core.model import Generation, Model, Prompt, Sampling
from palaestra.evaluation.judges.case import Case, render_case, render_windows
from palaestra.evaluation.judges.rubric import SOLVED, Rubric, choice_in, reason_in
from palaestra.evaluation.judges.verdict import Choice, Cost, Judge, Preference, Verdict

INSTRUCTION = (
    "You judge what an agent did in a world. You are given the task and the record of what it did "
    "and saw. Judge only by what the record shows, not by what the agent claims."
)
PAIR = (
    "Two agents worked on the same task. Which of them came closer to what the task asks?\n"
    "Answer with one line, exactly so:\nBetter: A, or Better: B, or Better: equal"
)
WINDOW = (
    "You see one part of the record. Answer by what this part shows: yes to a criterion that must "
    "hold in every part if nothing here breaks it, yes to any other if it is fulfilled here."
)
OVERLAP = 2  # turns that a window repeats of the one before
LONGEST = 6_000  # characters of a rendered case; a longer one loses its middle turns


class ModelJudge(Judge):
    """A judge that prompts a model with a rubric."""

    def __init__(
        self,
        model: Model,
        rubric: Rubric = SOLVED,
        *,
        name: str = "",
        tokens: int = 96,
        longest: int = LONGEST,
    ) -> None:
        """Configure the judge.

        Args:
            model: a language model; `expert` and `random` read nothing.
            rubric: question and criteria.
            name: of the judge; `model:` and the model's name by default.
            tokens: most tokens of a reply.
            longest: most characters of a record.
        """
        self.name = name or f"model:{model.name}"
        self.model, self._rubric, self._longest = model, rubric, longest
        self._sampling = Sampling(temperature=0.0, max_tokens=tokens)

    @property
    def rule(self) -> str:
        prompt = f"{INSTRUCTION}\n{self._rubric.form}"
        if self._rubric.windows:
            prompt = f"{prompt}\n{WINDOW} {OVERLAP}"
        return f"{self.model.name}\n{prompt}\n{self._sampling}\n{self._longest}"

    async def judge(self, case: Case) -> Verdict:
        """Return the weighted share of criteria that hold; no verdict if a reply is malformed."""
        if self._rubric.windows:
            return await self._in_windows(case)
        record = render_case(case, self._longest)
        try:
            reply, cost = await ask(self.model, [
                system(INSTRUCTION), user(f"{record}\n{self._rubric.form}"),
            ], self._sampling)  # fmt: skip
        except (ContextTooLong, InfrastructureFault) as why:
            return self.verdict(None, f"the model gave no reply: {why}")
        try:
            value = self._rubric.value(reply.text)
        except ValueError as why:
            return self.verdict(None, f"not in the form: {why}: {reply.text[:200]!r}", cost)
        return self.verdict(value, reason_in(reply.text), cost)

    async def _in_windows(self, case: Case) -> Verdict:
        """Ask for each window of the record; the model reads what held in those before."""
        found: list[dict[int, bool]] = []
        reasons, cost = list[str](), Cost()
        for text in render_windows(case, self._longest, OVERLAP):
            held = self._rubric.merged(found) if found else {}
            said = ", ".join(f"{n}: {'yes' if yes else 'no'}" for n, yes in held.items())
            before = f"By the parts before: {said}\n" if said else ""
            try:
                reply, spent = await ask(self.model, [
                    system(f"{INSTRUCTION} {WINDOW}"), user(f"{text}\n{before}{self._rubric.form}"),
                ], self._sampling)  # fmt: skip
                cost += spent
                found.append(self._rubric.answers(reply.text))
            except (ContextTooLong, InfrastructureFault) as why:
                reason = f"the model gave no reply for window {len(found) + 1}: {why}"
                return self.verdict(None, reason, cost)
            except ValueError as why:
                reason = f"window {len(found) + 1} not in the form: {why}: {reply.text[:200]!r}"
                return self.verdict(None, reason, cost)
            reasons += [reason] if (reason := reason_in(reply.text)) else []
        return self.verdict(self._rubric.share(self._rubric.merged(found)), " ".join(reasons), cost)

    async def prefer(self, a: Case, b: Case) -> Preference:
        """Compare both cases in one prompt, in this order; by their verdicts, with windows."""
        if self._rubric.windows:
            return await super().prefer(a, b)
        half = self._longest // 2
        both = f"Agent A:\n{render_case(a, half)}\nAgent B:\n{render_case(b, half)}\n{PAIR}"
        try:
            messages = [system(INSTRUCTION), user(both)]
            reply, cost = await ask(self.model, messages, self._sampling)
        except (ContextTooLong, InfrastructureFault):
            return Preference(Choice.NONE)
        return Preference(choice_in(reply.text), cost)


async def ask(
    model: Model, messages: Sequence[Message], sampling: Sampling
) -> tuple[Generation, Cost]:
    """Return one reply of a model to a new conversation, and its cost.

    `max_tokens` is dropped for a model whose server knows its limit, so that it can reason first.

    Raises:
        ContextTooLong: the conversation leaves no room for a reply.
        InfrastructureFault: the model failed or could not be reached.
    """
    if model.max_tokens is None:
        sampling = replace(sampling, max_tokens=None)
    tokens = tuple(model.renderer.start(messages)) if model.renderer else None
    started = time.monotonic()
    with model.participant():
        reply = await model.generate(Prompt(list(messages), tokens, sampling, seed=0))
    read = reply.prompt_tokens or len(tokens or ())
    sampled = len(reply.tokens) or reply.sampled_tokens
    return reply, Cost(1, read, sampled, 0, time.monotonic() - started)
