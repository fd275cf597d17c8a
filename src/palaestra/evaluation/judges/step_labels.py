"""Step labels by a model: useful, neutral or wrong, for each turn of an episode.

The labels, and the rule that an error counts until it is corrected, are those of
AgentProcessBench. A turn that the model does not label, or labels twice, has no label. The first
turn labelled wrong is the losing turn, according to this judge.
"""

from __future__ import annotations

import re

from palaestra.core.errors import ContextTooLong, InfrastructureFault
from palaestra.core.message import system, user
from palaestra.core.model import Model, Sampling
from palaestra.evaluation.attribution.base import Attribution, Ending, role_of
from palaestra.evaluation.attribution.counterfactual import Label
from palaestra.evaluation.judges.case import Case, render_case
from palaestra.evaluation.judges.model_judge import INSTRUCTION, LONGEST, ask
from palaestra.evaluation.judges.verdict import Cost

WINDOW = 16  # turns in one prompt
LINE = re.compile(r"\s*(?:turn\s+)?(\d+)\s*:\s*(useful|neutral|wrong)\s*[.]?\s*", re.IGNORECASE)
ASK = (
    "Label the turns {first} to {last} of the agent:\n"
    "useful: it brought the task nearer\nneutral: it did no harm\n"
    "wrong: it was a mistake, or rests on one that was not put right\n"
    "Answer with one line for each, exactly so:\n{first}: useful, neutral or wrong"
)


async def step_labels(model: Model, case: Case) -> tuple[list[Label | None], Cost]:
    """Return the label of each turn; None if the model gave none, or two."""
    found: list[Label | None] = []
    cost = Cost()
    for first in range(1, len(case.turns) + 1, WINDOW):
        last = min(len(case.turns), first + WINDOW - 1)
        question = f"{render_case(case, LONGEST)}\n{ASK.format(first=first, last=last)}"
        try:
            reply, spent = await ask(
                model, [system(INSTRUCTION), user(question)], Sampling(0.0, 12 * WINDOW)
            )
        except (ContextTooLong, InfrastructureFault):
            found += [None] * (last - first + 1)
            continue
        cost += spent
        labels = labels_in(reply.text)
        found += [labels.get(number) for number in range(first, last + 1)]
    return found, cost


def labels_in(reply: str) -> dict[int, Label]:
    """Return turn (from 1) to label; malformed lines and turns with two labels are dropped."""
    found: dict[int, set[Label]] = {}
    for line in reply.splitlines():
        if match := LINE.fullmatch(line):
            found.setdefault(int(match[1]), set()).add(Label(match[2].lower()))
    return {turn: next(iter(of)) for turn, of in found.items() if len(of) == 1}


def first_wrong(case: Case, labels: list[Label | None]) -> Attribution:
    """Return the attribution to the first turn labelled wrong."""
    scores = tuple(None if label is None else float(label is Label.WRONG) for label in labels)
    if Label.WRONG not in labels:
        silent = labels.count(None)
        why = f"no turn is labelled wrong ({silent} of {len(labels)} have no label)"
        return Attribution("judge", Ending.UNKNOWN, None, False, why, scores=scores)
    turn = labels.index(Label.WRONG)
    role = role_of(case.episode, turn)
    why = "the first turn that the judge labels wrong"
    return Attribution("judge", Ending.TURN, turn, False, why, role, scores=scores)
