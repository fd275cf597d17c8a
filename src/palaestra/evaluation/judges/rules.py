"""Rule judges: patterns in what was seen or said, calls of tools, states, a person's labels.

    seen:PATTERN     the last observation holds the pattern
    said:PATTERN     the last action holds it
    called:TOOL      some action called that tool, and was understood
    shown:PATTERN    what a probe showed holds it (see `active.py`)
    state:MODULE:FUNCTION   a function of the world in the episode's last state says so
    label:NAME       a person gave the episode that label

Patterns are regular expressions, read without regard to case.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping

from palaestra.core.environment import Environment
from palaestra.core.episode import Key
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.evaluation.attribution.replay import Replay, Worlds
from palaestra.evaluation.judges.case import Case
from palaestra.evaluation.judges.verdict import Cost, Judge, Verdict
from palaestra.store.notes import says

KINDS = ("seen", "said", "called", "shown")


class RuleJudge(Judge):
    """A pattern, or the name of a tool, in one part of the case."""

    def __init__(self, kind: str, pattern: str) -> None:
        """A rule of one of KINDS.

        Raises:
            InputError: the pattern is no regular expression.
        """
        self.name, self._kind, self._pattern = f"{kind}:{pattern}", kind, pattern
        try:
            self._expression = re.compile(pattern, re.IGNORECASE)
        except re.error as error:
            raise InputError(
                f"'{pattern}' is no regular expression: {error}; mend it, or write \\ before "
                "characters that are meant as they stand."
            ) from None

    @property
    def rule(self) -> str:
        return self.name

    async def judge(self, case: Case) -> Verdict:
        """1 where the rule holds, else 0; no verdict where there is nothing to look at."""
        if self._kind == "called":
            return self._called(case)
        looked = self._looked_at(case)
        if looked is None:
            return self.verdict(None, "no probe showed anything")
        found = self._expression.search(looked)
        if found is None:
            return self.verdict(0.0, f"nothing in it is {self._pattern!r}")
        return self.verdict(1.0, f"found {found.group()!r}")

    def _called(self, case: Case) -> Verdict:
        for step in case.episode.steps:
            call = step.action.call
            name = call.name if call else step.action.text.partition("(")[0].strip()
            if name == self._pattern and step.transition.valid:
                return self.verdict(1.0, f"called in turn {step.index + 1}")
        return self.verdict(0.0, f"'{self._pattern}' was never called")

    def _looked_at(self, case: Case) -> str | None:
        match self._kind:
            case "shown":
                shown = [evidence.seen for evidence in case.evidence]
                return "\n".join(shown) if shown else None
            case "said":
                return case.lines[-1].did if case.lines else ""
            case _:
                return case.lines[-1].seen if case.lines else case.task


class StateJudge(Judge):
    """A function of the world, which is replayed to where the episode ended."""

    def __init__(self, name: str, check: Callable[[Environment], bool], worlds: Worlds) -> None:
        self.name, self._check, self._worlds = name, check, worlds

    @property
    def rule(self) -> str:
        return self.name

    async def judge(self, case: Case) -> Verdict:
        """1 where the check holds in the last state, else 0; no verdict without a replay."""
        try:
            with Replay.of(case.episode, self._worlds) as replay:
                holds = self._check(replay.at(len(case.episode.steps)))
                cost = Cost(actions=replay.actions)
        except (InputError, EnvironmentFault) as why:
            return self.verdict(None, str(why))
        words = "the check holds" if holds else "the check does not hold"
        return self.verdict(float(holds), words, cost)


class LabelJudge(Judge):
    """What persons said of episodes, as a judge: it is silent where nobody said anything."""

    def __init__(self, label: str, labels: Mapping[Key, Mapping[str, str]]) -> None:
        """The label of that name among those that were given."""
        self.name, self._label, self._labels = f"label:{label}", label, labels

    @property
    def rule(self) -> str:
        said = {str(key): says(of, self._label) for key, of in self._labels.items()}
        return f"{self.name} {sorted(said.items())}"  # another judge when persons say more

    async def judge(self, case: Case) -> Verdict:
        """1 where the label agrees; no verdict without the label."""
        said = says(self._labels.get(case.episode.key, {}), self._label)
        if said is None:
            return self.verdict(None, f"nobody gave the label '{self._label}'")
        return self.verdict(float(said), f"a person said {self._label}: {'yes' if said else 'no'}")


def state_check(target: str) -> Callable[[Environment], bool]:
    """The function `module:function`.

    Raises:
        InputError: there is none.
    """
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"The state check '{target}' cannot be found: {error}; write state:MODULE:FUNCTION, "
            "with the module on the PYTHONPATH."
        ) from None
    if not callable(found):
        raise InputError(f"The state check '{target}' is no function of a world.")
    return found
