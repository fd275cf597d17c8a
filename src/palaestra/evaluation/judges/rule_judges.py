"""Rule judges: patterns in observations or actions, tool calls, states, a person's labels.

    seen:PATTERN     the last observation matches the pattern
    said:PATTERN     the last action matches it
    called:TOOL      a valid action called that tool
    shown:PATTERN    a probe's observation matches it (see `active_judge.py`)
    state:MODULE:FUNCTION   a function of the environment in its last state returns true
    label:NAME       a person gave the episode that label

Patterns are case-insensitive regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from palaestra.core.environment import Environment
from palaestra.core.episode import Key
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.paths import import_named
from palaestra.evaluation.attribution.turn_replay import EnvironmentFactory, TurnReplay
from palaestra.evaluation.judges.case import Case
from palaestra.evaluation.judges.verdict import Cost, Judge, Verdict
from palaestra.store.notes import matches_label

KINDS = ("seen", "said", "called", "shown")


class RuleJudge(Judge):
    """A judge that looks for a pattern, or for calls of a tool, in one part of the case."""

    def __init__(self, kind: str, pattern: str) -> None:
        """Compile a rule of one of KINDS.

        Raises:
            InputError: the pattern is not a regular expression.
        """
        self.name, self._kind, self._pattern = f"{kind}:{pattern}", kind, pattern
        try:
            self._expression = re.compile(pattern, re.IGNORECASE)
        except re.error as error:
            raise InputError(
                f"'{pattern}' is not a regular expression: {error}; fix it, or write \\ before "
                "literal characters."
            ) from None

    @property
    def rule(self) -> str:
        return self.name

    async def judge(self, case: Case) -> Verdict:
        """Return 1 if the rule holds, else 0; no verdict if no probe showed anything."""
        if self._kind == "called":
            return self._called(case)
        text = self._text(case)
        if text is None:
            return self.verdict(None, "no probe showed anything")
        found = self._expression.search(text)
        if found is None:
            return self.verdict(0.0, f"nothing matches {self._pattern!r}")
        return self.verdict(1.0, f"found {found.group()!r}")

    def _called(self, case: Case) -> Verdict:
        for step in case.episode.steps:
            call = step.action.call
            name = call.name if call else step.action.text.partition("(")[0].strip()
            if name == self._pattern and step.transition.valid:
                return self.verdict(1.0, f"called in turn {step.index + 1}")
        return self.verdict(0.0, f"'{self._pattern}' was never called")

    def _text(self, case: Case) -> str | None:
        match self._kind:
            case "shown":
                shown = [evidence.seen for evidence in case.evidence]
                return "\n".join(shown) if shown else None
            case "said":
                return case.turns[-1].action if case.turns else ""
            case _:
                return case.turns[-1].observation if case.turns else case.task


class StateJudge(Judge):
    """A judge that applies a function to the environment, replayed to the episode's end."""

    def __init__(
        self, name: str, check: Callable[[Environment], bool], make_env: EnvironmentFactory
    ) -> None:
        self.name, self._check, self._make_env = name, check, make_env

    @property
    def rule(self) -> str:
        return self.name

    async def judge(self, case: Case) -> Verdict:
        """Return 1 if the check holds in the last state, else 0; no verdict without a replay."""
        try:
            with TurnReplay.of(case.episode, self._make_env) as replay:
                holds = self._check(replay.at(len(case.episode.steps)))
                cost = Cost(actions=replay.actions)
        except (InputError, EnvironmentFault) as why:
            return self.verdict(None, str(why))
        words = "the check holds" if holds else "the check does not hold"
        return self.verdict(float(holds), words, cost)


class LabelJudge(Judge):
    """A judge that repeats the labels that people gave; without a label, no verdict."""

    def __init__(self, label: str, labels: Mapping[Key, Mapping[str, str]]) -> None:
        """Use the label of that name among `labels`."""
        self.name, self._label, self._labels = f"label:{label}", label, labels

    @property
    def rule(self) -> str:
        values = {str(key): matches_label(of, self._label) for key, of in self._labels.items()}
        return f"{self.name} {sorted(values.items())}"  # new labels make another identity

    async def judge(self, case: Case) -> Verdict:
        """Return 1 if the label says yes, else 0; no verdict without the label."""
        value = matches_label(self._labels.get(case.episode.key, {}), self._label)
        if value is None:
            return self.verdict(None, f"the episode has no label '{self._label}'")
        words = f"a person labelled it {self._label}: {'yes' if value else 'no'}"
        return self.verdict(float(value), words)


def state_check(target: str) -> Callable[[Environment], bool]:
    """Import the function `module:function`.

    Raises:
        InputError: there is none.
    """
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_named(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"The state check '{target}' cannot be imported: {error}; write "
            "state:MODULE:FUNCTION, with the module on the PYTHONPATH."
        ) from None
    if not callable(found):
        raise InputError(
            f"The state check '{target}' is not callable; name a function of an environment."
        )
    return found
