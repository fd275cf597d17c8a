"""A gesture as one line of text, and back.

    click [12]              an element by its id; an id of other characters is quoted: ['a b']
    click #3                an element by its mark
    click (320, 40)         a point in pixels
    click (0.5, 0.1)        a point in shares of width and height: both from 0 to 1, one with a dot
    click 'the Buy button'  an element by words
    type [7] 'hello' clear enter
    press 'Control+a'
    scroll down 300         in pixels; `scroll [4] right 2 pages` in pages, `scroll down` one page
    drag [3] to [9]
    select [5] 'Red'
    upload [4] 'cv.pdf'
    go 'http://shop/', back, forward, home, open 'Clock', tab 2, tab new, tab close
    wait 2, say '…', answer '…', give up

Texts stand in quotes, single or double, with Python's escapes, so that each gesture is one line;
`read_line(write_line(gesture)) == gesture` holds for every gesture. A point in pixels that would
read as one in shares has `px` behind its numbers: `(0.5, 1 px)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Kind, Mark, Point, Target, Words

EXAMPLES: dict[Kind, str] = {
    "click": "click [12]",
    "double": "double [12]",
    "right": "right [12]",
    "hover": "hover [12]",
    "type": "type [7] 'hello' enter",
    "press": "press 'Control+a'",
    "scroll": "scroll down 300",
    "drag": "drag [3] to [9]",
    "select": "select [5] 'Red'",
    "upload": "upload [4] 'cv.pdf'",
    "go": "go 'http://shop/'",
    "back": "back",
    "forward": "forward",
    "home": "home",
    "open": "open 'Clock'",
    "tab": "tab 2",
    "wait": "wait 2",
    "say": "say 'Which size?'",
    "answer": "answer '42'",
    "give up": "give up",
}
"""One right line for each kind, shown where a line is wrong."""

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<id>\[\s*(?:{_QUOTED}|[^\s\]\['"]+)\s*\])
    | (?P<mark>\#\d+)
    | (?P<point>\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*(?:px\s*)?\))
    | (?P<quoted>{_QUOTED})
    | (?P<number>{_NUMBER})
    | (?P<word>[a-z]+)
    )(?=\s|$)""",
    re.DOTALL | re.VERBOSE,
)
_PLAIN_ID = re.compile(r"[^\s\]\['\"]+")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_DIRECTIONS = {"right": (0, 1), "left": (0, -1), "down": (1, 1), "up": (1, -1)}


def write_line(gesture: Gesture) -> str:
    """Return the one line of a gesture."""
    parts: list[str] = [gesture.kind]
    if gesture.target is not None:
        parts.append(write_target(gesture.target))
    if gesture.to is not None:
        parts += ["to", write_target(gesture.to)]
    match gesture.kind:
        case "scroll":
            parts += _written_scroll(gesture)
        case "wait":
            parts.append(number_text(gesture.amount[0]))
        case "tab":
            parts.append(gesture.text)
        case "answer":
            parts.append(repr(gesture.text))
        case "type" if isinstance(gesture.target, Words):  # which alone would be the text
            parts.append(repr(gesture.text))
        case _ if gesture.text:
            parts.append(repr(gesture.text))
    if gesture.clear:
        parts.append("clear")
    if gesture.enter:
        parts.append("enter")
    return " ".join(parts)


def write_target(target: Target) -> str:
    """Return the form that a target has in a line."""
    match target:
        case Id(id):
            return f"[{id}]" if _PLAIN_ID.fullmatch(id) and id.isprintable() else f"[{id!r}]"
        case Mark(number):
            return f"#{number}"
        case Words(words):
            return repr(words)
        case Point(x, y, "shares"):
            return f"({float(x)!r}, {float(y)!r})"
        case Point(x, y):
            written = f"{number_text(x)}, {number_text(y)}"
            return f"({written} px)" if _in_shares(written) else f"({written})"


def read_target(text: str) -> Target | None:
    """Return the target of that form; None if the text has no such form."""
    tokens = _Tokens(text)
    found = tokens.target()
    return None if tokens.rest.strip() else found


def read_line(line: str) -> Gesture:
    """Return the gesture that a line names.

    Raises:
        InputError: it names none; the message shows a line of the right form.
    """
    try:
        tokens = _Tokens(line)
        kind = tokens.kind()
        try:
            gesture = _read(kind, tokens)
            tokens.end()
        except _Wrong as wrong:
            raise _Wrong(f"{wrong}; write it like: {EXAMPLES[kind]}") from None
    except _Wrong as wrong:
        raise InputError(f"'{_shortened(line)}' is no gesture: {wrong}") from None
    return gesture


def _read(kind: Kind, tokens: _Tokens) -> Gesture:
    match kind:
        case "click" | "double" | "right" | "hover":
            return _made(kind, target=tokens.target())
        case "type":
            target = tokens.target_before_text()
            text = tokens.text()
            clear, enter = tokens.word("clear"), tokens.word("enter")
            return _made(kind, target=target, text=text, clear=clear, enter=enter)
        case "press":
            return _made(kind, target=tokens.target_before_text(), text=tokens.text())
        case "scroll":
            return _read_scroll(tokens)
        case "drag":
            target = tokens.target()
            if not tokens.word("to"):
                raise _Wrong("it needs `to` and a target to end at")
            return _made(kind, target=target, to=tokens.target())
        case "select" | "upload":
            return _made(kind, target=tokens.target(), text=tokens.text())
        case "go" | "open" | "say" | "answer" | "give up":
            return _made(kind, text=tokens.text())
        case "tab":
            text = tokens.take("number") or tokens.take("word") or ""
            return _made(kind, text=text)
        case "wait":
            return _made(kind, amount=(tokens.number() or 0.0, 0.0))
        case "back" | "forward" | "home":
            return _made(kind)


def _read_scroll(tokens: _Tokens) -> Gesture:
    target, amount, units = tokens.target(), [0.0, 0.0], set()
    while (direction := tokens.take("word")) is not None:
        if direction not in _DIRECTIONS:
            raise _Wrong(f"'{direction}' is no direction; known: {', '.join(_DIRECTIONS)}")
        axis, sign = _DIRECTIONS[direction]
        if amount[axis]:
            raise _Wrong("it scrolls twice along one axis")
        number = tokens.number()
        paged = tokens.word("page") or tokens.word("pages") or number is None
        amount[axis] = sign * (1.0 if number is None else number)
        units.add("pages" if paged else "pixels")
    if len(units) > 1:
        raise _Wrong("it scrolls by pixels and by pages at once")
    unit = "pages" if units == {"pages"} else "pixels"
    return _made("scroll", target=target, amount=(amount[0], amount[1]), unit=unit)


def _written_scroll(gesture: Gesture) -> list[str]:
    found = []
    for far, positive, negative in zip(
        gesture.amount, ("right", "down"), ("left", "up"), strict=True
    ):
        if far:
            found += [positive if far > 0 else negative, number_text(abs(far))]
            if gesture.unit == "pages":
                found.append("page" if abs(far) == 1 else "pages")
    return found


def _made(kind: Kind, **fields: object) -> Gesture:
    try:
        return Gesture(kind, **fields)  # type: ignore[arg-type]
    except InputError as error:
        raise _Wrong(str(error).rstrip(".")) from None


class _Wrong(Exception):
    """Why a line is no gesture."""


@dataclass
class _Tokens:
    """The rest of a line, read from its start."""

    rest: str

    def kind(self) -> Kind:
        """Take the verb."""
        word = self.take("word")
        if word == "give" and self.word("up"):
            return "give up"
        if word is None or word not in EXAMPLES:
            raise _Wrong(
                f"it begins with none of {', '.join(EXAMPLES)}; write one like: click [12]"
            )
        return word

    def take(self, kind: str) -> str | None:
        """Take the next token if it is of that kind; None otherwise."""
        found = _TOKEN.match(self.rest)
        if found is None or found[kind] is None:
            return None
        self.rest = self.rest[found.end() :]
        return found[kind]

    def word(self, word: str) -> bool:
        """Take the next token if it is that word."""
        found = _TOKEN.match(self.rest)
        if found is None or found["word"] != word:
            return False
        self.rest = self.rest[found.end() :]
        return True

    def number(self) -> float | None:
        """Take a number."""
        found = self.take("number")
        return None if found is None else float(found)

    def text(self) -> str:
        """Take a quoted text; empty if there is none."""
        found = self.take("quoted")
        return "" if found is None else _unquoted(found)

    def target(self) -> Target | None:
        """Take a target."""
        if (found := self.take("id")) is not None:
            inner = found[1:-1].strip()
            return Id(_unquoted(inner) if inner[0] in "'\"" else inner)
        if (found := self.take("mark")) is not None:
            return Mark(int(found[1:]))
        if (found := self.take("point")) is not None:
            inner = found[1:-1]
            x, y = re.findall(_NUMBER, inner)
            unit = "shares" if _in_shares(inner) else "pixels"
            return Point(float(x), float(y), unit)  # type: ignore[arg-type]
        if (found := self.take("quoted")) is not None:
            return Words(_unquoted(found))
        return None

    def target_before_text(self) -> Target | None:
        """Take a target; words are one only if a text follows them."""
        before = self.rest
        found = self.target()
        if isinstance(found, Words):
            following = _TOKEN.match(self.rest)
            if following is None or following["quoted"] is None:
                self.rest = before
                return None
        return found

    def end(self) -> None:
        """Raise _Wrong if anything is left."""
        if self.rest.strip():
            raise _Wrong(f"`{_shortened(self.rest.strip())}` does not belong there")


def _in_shares(point: str) -> bool:
    """Return whether "x, y" is read as shares: both from 0 to 1, and one with a dot."""
    numbers = re.findall(_NUMBER, point)
    return (
        "px" not in point
        and all(0 <= float(number) <= 1 for number in numbers)
        and any(re.search(r"[.eE]", number) for number in numbers)
    )


def number_text(value: float) -> str:
    """Return the shortest form of a number that reads back as itself."""
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _unquoted(quoted: str) -> str:
    """Return the text within quotes; an escape that Python lacks stands for itself, as there."""

    def character(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2] or escape[3]
        if code is not None:
            number = int(code, 16)
            return chr(number) if number <= 0x10FFFF else escape[0]
        if escape[4] in "\\'\"":
            return escape[4]
        return _LETTERS.get(escape[4], escape[0])

    return _ESCAPE.sub(character, quoted[1:-1])


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"
