"""Gestures whose targets are named by words (`targets=words`), where these fit one element only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Capability, Spec
from palaestra.core.gesture import Gesture, Id, Target, Words
from palaestra.core.gestures.element_words import words_of
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import elements_of
from palaestra.environments.wrappers.wrapper import Wrapper, require_capability


class WordTargets(Wrapper):
    """An environment of gestures whose oracle names elements by words, and by ids where none fit.

    Environments read such gestures anyway. The views around it (`observation=`) then show no ids of
    elements that words name, and the words in their place where these are not the name.
    """

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_capability(spec, Capability.ELEMENTS, f"targets={value}")
        return spec

    @property
    def instructions(self) -> str:
        return (
            f"{self.inner.instructions}\nName what has no [id] by words: its name, as in "
            "click 'Submit'; the words before it, as in type 'second textbox' 'hello'; or its role."
        )

    def oracle(self) -> Sequence[Action]:
        """Return the inner plan, the first action by words: what fits later is not known yet."""
        plan = list(self.inner.oracle())
        if not plan:
            return plan
        gesture, words = gesture_in(plan[0]), words_of(elements_of(self.inner))
        return [_by_words(gesture, words), *plan[1:]]


def _by_words(gesture: Gesture, words: Mapping[str, str]) -> Action:
    def named(target: Target | None) -> Target | None:
        known = isinstance(target, Id) and target.id in words
        return Words(words[target.id]) if known else target  # type: ignore[union-attr]

    return Action(write_line(replace(gesture, target=named(gesture.target), to=named(gesture.to))))
