"""A scanner over a reply that may still grow: it never decides what more text could change.

Each method reads at `place` and moves it. Where the text ends too early, it raises `Incomplete`;
where the text is wrong whatever follows, `Malformed`. At the end of a reply nothing follows, so
there `Incomplete` is `Malformed` as well. A reader built of these methods therefore gives the same
result however its text was cut into chunks.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from palaestra.core.message import ToolCall

DEEPEST = 200  # brackets within brackets
PYTHON = {"True": "true", "False": "false", "None": "null"}  # as some templates write JSON


class Incomplete(Exception):
    """More text is needed to decide."""


class Malformed(Exception):
    """No further text could make a call of it."""


class Scanner:
    """A place in the text of a reply."""

    def __init__(self, text: str, place: int, ended: bool) -> None:
        """Start at `place`; `ended` is whether the reply is complete."""
        self.text, self.place, self.ended = text, place, ended

    def ends(self) -> bool:
        """Return whether the reply ends here."""
        if self.place < len(self.text):
            return False
        if not self.ended:
            raise Incomplete
        return True

    def blanks(self) -> None:
        """Skip white space."""
        while self.place < len(self.text) and self.text[self.place].isspace():
            self.place += 1

    def sees(self, *marks: str) -> str:
        """Return the first of the marks that the text goes on with, or an empty text."""
        rest = self.text[self.place : self.place + max(map(len, marks))]
        for mark in marks:
            if rest.startswith(mark):
                return mark
        if not self.ended and any(mark.startswith(rest) for mark in marks):
            raise Incomplete
        return ""

    def optional(self, *marks: str) -> str:
        """Skip one of the marks if there is one; return it, or an empty text."""
        mark = self.sees(*marks)
        self.place += len(mark)
        return mark

    def mark(self, *marks: str) -> str:
        """Skip one of the marks and return it."""
        mark = self.optional(*marks)
        if not mark:
            raise Malformed
        return mark

    def until(self, *marks: str) -> str:
        """Return the text before the first of the marks, and stop there."""
        ends = [end for end in (self.text.find(mark, self.place) for mark in marks) if end >= 0]
        if not ends:
            raise self._short()
        start, self.place = self.place, min(ends)
        return self.text[start : self.place]

    def json(self) -> Any:
        """Parse an object or a list in strict JSON."""
        span = self.balanced(_JSON_PARTS, "{[")
        try:
            value = _JSON.decode(span)
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()  # no lone surrogates
        except (ValueError, RecursionError):
            raise Malformed from None
        return value

    def calls_in_python(self) -> list[ToolCall]:
        """Parse a list of calls, or one call, with literal arguments by name."""
        span = self.balanced(_PYTHON_PARTS, "[") if self.sees("[") else self._one_call()
        try:
            found = ast.parse(span, mode="eval").body
            calls = found.elts if isinstance(found, ast.List) else [found]
            return [_python_call(call) for call in calls]
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            raise Malformed from None

    def balanced(self, parts: re.Pattern[str], opening: str) -> str:
        """Return the text from an opening bracket up to the one that closes it."""
        if not self.sees(*opening):
            raise Malformed
        depth = 0
        for part in parts.finditer(self.text, self.place):
            if part[0] in _OPEN:
                depth += 1
            elif part[0] in _CLOSE:
                depth -= 1
            if depth > DEEPEST:
                raise Malformed
            if depth == 0:
                start, self.place = self.place, part.end()
                return self.text[start : self.place]
        raise self._short()

    def _one_call(self) -> str:
        name = _NAME.match(self.text, self.place)
        if name is None and self.place < len(self.text):
            raise Malformed
        if name is None or name.end() == len(self.text):
            raise self._short()
        start, self.place = self.place, name.end()
        self.balanced(_PYTHON_PARTS, "(")
        return self.text[start : self.place]

    def _short(self) -> Exception:
        return Malformed() if self.ended else Incomplete()


def _python_call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    name = ast.unparse(node.func)
    if name == "print" and len(node.args) == 1 and not node.keywords:
        return _python_call(node.args[0])  # as code that shows a result is written
    if node.args or any(word.arg is None for word in node.keywords):
        raise ValueError("arguments without names")
    arguments = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
    json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    return ToolCall(name, arguments)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_OPEN, _CLOSE = ("{", "[", "("), ("}", "]", ")")
_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'  # the end of a text may be missing
_JSON_PARTS = re.compile(rf"{_TEXT}|[{{}}\[\]]", re.DOTALL)
_PYTHON_PARTS = re.compile(rf"""{_TEXT}|{_TEXT.replace('"', "'")}|[{{}}\[\]()]""", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_JSON = json.JSONDecoder(parse_constant=_no_number)
