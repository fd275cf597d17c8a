r"""Temporal logic over finite traces (LTLf): the syntax and semantics of formulas.

A trace is a list of moments; a moment is an observation and the action that follows it. A formula
is about a moment and those after it (De Giacomo and Vardi 2013):

    drop   'go north'   /take .*/   the action is this word or text, or matches this expression
    seen fire   seen 'a key'   seen /\d+ left/   the observation contains it
    not p   !p      p and q   p & q      p or q   p | q      p -> q      true   false
    G p   always              F p   at some time            p U q   p until q, which comes
    X p   there is a next moment, and p then                p R q   q until p inclusive, or always
    N p   if there is a next moment, p then                 p W q   p until q, or always

`not X N G F` bind tightest, then `U R W`, `and`, `or`, `->`. Actions and observations are matched
without regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError


class Moment(NamedTuple):
    """An observation, and the action that follows it."""

    seen: str
    action: str


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Atom:
    """A property of one moment."""

    text: str  # a word or text, or the regular expression
    of_seen: bool = False  # else of the action
    pattern: bool = False  # whether it is a regular expression
    wanted: bool = True  # false: the moment lacks the property

    def holds(self, moment: Moment) -> bool:
        return self.fits(moment.seen if self.of_seen else moment.action)

    def fits(self, text: str) -> bool:
        """Return whether a text (the observation or the action of a moment) makes it true."""
        text = text.strip()
        if self.pattern:
            search = re.search if self.of_seen else re.fullmatch
            found = search(self.text, text, re.IGNORECASE) is not None
        elif self.of_seen:
            found = self.text.lower() in text.lower()
        else:
            found = self.text.lower() == text.lower()
        return found is self.wanted


@dataclass(frozen=True, slots=True)
class And:
    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Or:
    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Next:
    """Strong next (`X`, `must=True`) or weak next (`N`)."""

    then: Formula
    must: bool = True


@dataclass(frozen=True, slots=True)
class Until:
    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Release:
    left: Formula
    right: Formula


Formula: TypeAlias = Truth | Atom | And | Or | Next | Until | Release
TRUE, FALSE = Truth(True), Truth(False)


def negated(formula: Formula) -> Formula:
    """Return the negation in negation normal form: only atoms are negated."""
    match formula:
        case Truth(value):
            return Truth(not value)
        case Atom(text, of_seen, pattern, wanted):
            return Atom(text, of_seen, pattern, not wanted)
        case And(left, right):
            return Or(negated(left), negated(right))
        case Or(left, right):
            return And(negated(left), negated(right))
        case Next(then, must):
            return Next(negated(then), not must)
        case Until(left, right):
            return Release(negated(left), negated(right))
        case Release(left, right):
            return Until(negated(left), negated(right))


def holds(formula: Formula, trace: Sequence[Moment], at: int = 0) -> bool:
    """Return whether a finished trace satisfies the formula, from the moment `at` on.

    After the last moment every atom is false and its negation true.
    """
    rest = range(at, len(trace))
    match formula:
        case Truth(value):
            return value
        case Atom():
            return formula.holds(trace[at]) if rest else not formula.wanted
        case And(left, right):
            return holds(left, trace, at) and holds(right, trace, at)
        case Or(left, right):
            return holds(left, trace, at) or holds(right, trace, at)
        case Next(then, must):
            return holds(then, trace, at + 1) if len(rest) > 1 else not must
        case Until(left, right):
            return any(
                holds(right, trace, i) and all(holds(left, trace, j) for j in range(at, i))
                for i in rest
            )
        case Release(left, right):
            return all(
                holds(right, trace, i) or any(holds(left, trace, j) for j in range(at, i))
                for i in rest
            )


def atoms(formula: Formula) -> Iterator[Atom]:
    """Yield the atoms of a formula in order, with repetitions."""
    match formula:
        case Atom():
            yield formula
        case Next(then):
            yield from atoms(then)
        case And(left, right) | Or(left, right) | Until(left, right) | Release(left, right):
            yield from atoms(left)
            yield from atoms(right)


def trace_of(episode: Episode) -> list[Moment]:
    """Return the moments of a recorded episode, without its last observation."""
    if episode.observation is None:
        return []
    seen = [episode.observation, *(step.transition.observation for step in episode.steps)]
    return [Moment(o.text, s.action.text) for o, s in zip(seen, episode.steps, strict=False)]


# ── parsing ──────────────────────────────────────────────────────────────────

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<pattern>/(?:\\.|[^/\\])+/)"
    r"|(?P<sign>->|&&?|\|\|?|[!()])|(?P<word>[^\W\d]\w*(?:-\w+)*))"
)
_SIGNS = {"&": "and", "&&": "and", "|": "or", "||": "or", "!": "not"}
_KEYWORDS = {"and", "or", "not", "true", "false", "seen", *"GFXNURW"}


def parse(text: str) -> Formula:
    """Parse a formula in the syntax of this module.

    Raises:
        InputError: the syntax is wrong; it names the position.
    """
    return _Parser(text).parse()


class _Parser:
    """A recursive-descent parser of one formula."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []  # kind, text and position
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None:
                raise self._error(position, "an operator, a word, a 'text' or a /pattern/")
            kind = str(found.lastgroup)
            value = found[kind]
            self._tokens.append((kind, _SIGNS.get(value, value), found.start(kind)))
            position = found.end()

    def parse(self) -> Formula:
        formula = self._implication()
        if self._tokens:
            raise self._error(self._tokens[0][2], "an operator or the end")
        return formula

    def _implication(self) -> Formula:
        left = self._joined("or", Or, lambda: self._joined("and", And, self._binary))
        if self._take("->"):
            return Or(negated(left), self._implication())
        return left

    def _joined(
        self, sign: str, join: type[And] | type[Or], part: Callable[[], Formula]
    ) -> Formula:
        found = part()
        while self._take(sign):
            found = join(found, part())
        return found

    def _binary(self) -> Formula:
        left = self._unary()
        if self._take("U"):
            return Until(left, self._binary())
        if self._take("R"):
            return Release(left, self._binary())
        if self._take("W"):
            right = self._binary()
            return Release(right, Or(left, right))
        return left

    def _unary(self) -> Formula:
        if self._take("not"):
            return negated(self._unary())
        if self._take("X"):
            return Next(self._unary())
        if self._take("N"):
            return Next(self._unary(), must=False)
        if self._take("F"):
            return Until(TRUE, self._unary())
        if self._take("G"):
            return Release(FALSE, self._unary())
        if self._take("("):
            inner = self._implication()
            if not self._take(")"):
                raise self._error(self._position, "')'")
            return inner
        for value in (True, False):
            if self._take(str(value).lower()):
                return Truth(value)
        return self._atom(of_seen=self._take("seen"))

    def _atom(self, of_seen: bool) -> Atom:
        if not self._tokens or self._tokens[0][0] == "sign" or self._tokens[0][1] in _KEYWORDS:
            raise self._error(self._position, "a word, a 'text' or a /pattern/")
        kind, text, position = self._tokens.pop(0)
        if kind == "word":
            return Atom(text, of_seen)
        if kind == "text":
            return Atom(text[1:-1].strip(), of_seen)
        try:
            re.compile(text[1:-1])
        except re.error as error:
            raise self._error(position, f"a regular expression ({error})") from None
        return Atom(text[1:-1], of_seen, pattern=True)

    def _take(self, sign: str) -> bool:
        """Consume the next token if it is this keyword or sign; return whether it was."""
        if self._tokens and self._tokens[0][:2] in (("sign", sign), ("word", sign)):
            self._tokens.pop(0)
            return True
        return False

    @property
    def _position(self) -> int:
        return self._tokens[0][2] if self._tokens else len(self._text)

    def _error(self, position: int, wanted: str) -> InputError:
        where = (
            f"at '{self._text[position : position + 20]}'"
            if self._text[position:]
            else "at its end"
        )
        return InputError(
            f"The formula '{self._text}' cannot be read {where}: expected {wanted}. Write, for "
            "example, G(!pickup) and F(drop)."
        )
