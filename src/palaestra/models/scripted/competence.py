"""What a reader can do: the options of the model `reader`, and its probability of being right.

    reader?right=0.3&found=0.9             right more often if its prompt has the right part
    reader?part=dose&recall=0.8            a member that speaks of one part only
    reader?right=0.9&right.number=0.5      one part is harder than the others
    reader?right=0.3&with.plan=0.9         right more often if its prompt has the right "plan: …"
    reader?right=0.3&with.You%20are%20Ada=0.9      or a text, percent-encoded

Parts are those of an answer such as "dose: 5 mg; visit: soon" (`team_words.answer_parts`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import unquote

from palaestra.core.errors import InputError, UnknownName


@dataclass(frozen=True, slots=True)
class Competence:
    """What a reader can do; all numbers are probabilities.

    Raises:
        InputError: a number is none.
    """

    right: float = 1.0  # of the right action, or of each right part
    recall: float = 1.0  # that it calls a wrong proposal wrong
    false: float = 0.0  # that it calls a right proposal wrong
    honesty: float = 1.0  # that its vote or rating judges a proposal rightly
    found: float | None = None  # of a right part whose text is in its prompt; None: as `right`
    share: float = 0.0  # that what it says of a wrong action has the mistake that it just read
    outside: float | None = None  # of the right action for work outside its skills; None: `right`
    part: str = ""  # the only part that it speaks of; empty: all
    rights: tuple[tuple[str, float], ...] = ()  # `right` of single parts
    given: tuple[tuple[str, float], ...] = ()
    """`right` where texts are in the prompt: keys of parts or texts, joined by "+". The last pair
    whose texts are all there counts, before `found`."""

    def __post_init__(self) -> None:
        for name, value in (*asdict(self).items(), *self.rights, *self.given):
            if isinstance(value, float | int) and not 0 <= value <= 1:
                raise InputError(f"The reader's {name}={value} is no probability; give 0 to 1.")

    def probability(self, key: str, right: Mapping[str, str], prompt: str) -> float:
        """Return how probably a part, or the whole action, is right after that prompt.

        Args:
            key: of the part; empty for the whole action.
            right: the parts of the right action, and for the whole one its text under "".
            prompt: all that the member has read.
        """
        found = dict(self.rights).get(key, self.right)
        if self.found is not None and contains(prompt, right[key]):
            found = self.found
        for keys, value in self.given:
            if all(contains(prompt, right.get(one, one)) for one in keys.split("+")):
                found = value
        return found


def contains(prompt: str, text: str) -> bool:
    """Return whether a prompt contains a text that is not part of longer words or numbers."""
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", prompt) is not None


def competence_of(name: str) -> Competence:
    """Return the competence in the name of a model, such as `reader?right=0.7`.

    Raises:
        UnknownName: there is no such option.
        InputError: a value is no number from 0 to 1.
    """
    plain: dict[str, float | str] = {}
    pairs: dict[str, list[tuple[str, float]]] = {"right": [], "with": []}
    numbers = [one.name for one in fields(Competence) if str(one.type).startswith("float")]
    for option in name.partition("?")[2].split("&") if "?" in name else ():
        key, _, value = option.partition("=")
        group, dot, of = key.partition(".")
        if key == "part":
            plain[key] = unquote(value)
        elif dot and group in pairs:
            pairs[group].append((unquote(of), _number(name, key, value)))
        elif key in numbers:
            plain[key] = _number(name, key, value)
        else:
            known = [*numbers, "part", "right.PART", "with.KEY"]
            raise UnknownName("option of the model 'reader'", key, known)
    return Competence(**plain, rights=tuple(pairs["right"]), given=tuple(pairs["with"]))  # type: ignore[arg-type]


def _number(name: str, option: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InputError(f"'{name}': {option} must be a number from 0 to 1, not '{value}'.")
    return number
