"""Mutations of Python source: small bugs such as people make, each in one place.

Mutation operators after DeMillo et al. 1978 and mutmut: a flipped comparison, off by one, a wrong
operator, a dropped return, swapped arguments, a negated condition. A mutation changes a span of one
line and nothing else, so comments and layout stay, and the fix is small.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}


@dataclass(frozen=True, slots=True, order=True)
class Mutation:
    """A change of one place."""

    line: int  # from 1
    start: int  # in bytes of the line
    end: int
    text: str  # the replacement
    kind: str


def mutations(source: str) -> list[Mutation]:
    """Return all mutations of the function bodies in a file, in the order of the lines."""
    lines = source.encode().splitlines()
    found: set[Mutation] = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in function.body:
                for node in ast.walk(statement):
                    found.update(_of(node, lines))
    return sorted(found)


def mutated(source: str, mutation: Mutation) -> str:
    """Apply a mutation to the source."""
    lines = source.encode().splitlines(keepends=True)
    line = lines[mutation.line - 1]
    lines[mutation.line - 1] = (
        line[: mutation.start] + mutation.text.encode() + line[mutation.end :]
    )
    return b"".join(lines).decode()


def _of(node: ast.AST, lines: list[bytes]) -> Iterator[Mutation]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            yield from _between(left, right, COMPARISONS[type(op)], "comparison", lines)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            if not any(isinstance(side, (ast.Constant, ast.JoinedStr)) and _text(side)
                       for side in (left, right)):  # fmt: skip
                yield from _between(left, right, OPERATORS[type(op)], "operator", lines)
        case ast.BoolOp(op=op, values=[first, second, *_]):
            words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            yield from _between(first, second, words, "operator", lines)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield from _instead(node, str(number + 1), "off by one", lines)
        case ast.Return(value=ast.expr() as value):
            if _one_line(node) and _one_line(value):
                start = node.col_offset
                yield Mutation(node.lineno, start, value.col_offset, "", "dropped return")
        case ast.Call(args=[first, second, *_]) if _one_line(node):
            if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                one, two = _source(first, lines), _source(second, lines)
                if one != two and second.end_col_offset is not None:
                    between = lines[node.lineno - 1][first.end_col_offset : second.col_offset]
                    swapped = f"{two}{between.decode()}{one}"
                    start, end = first.col_offset, second.end_col_offset
                    yield Mutation(node.lineno, start, end, swapped, "swapped arguments")
        case ast.If(test=test) if _one_line(test):
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                yield from _instead(test, _source(test.operand, lines), "condition", lines)
            elif not isinstance(test, ast.Compare):
                yield from _instead(test, f"not ({_source(test, lines)})", "condition", lines)


def _between(
    left: ast.expr, right: ast.expr, words: tuple[str, str], kind: str, lines: list[bytes]
) -> Iterator[Mutation]:
    """Yield the mutation of the operator between two operands, if they share a line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    gap = lines[right.lineno - 1][left.end_col_offset : right.col_offset].decode()
    found = re.search(rf"(?<![<>=!*/+%-]){re.escape(words[0])}(?![<>=*/])", gap)
    if found:
        start = left.end_col_offset + found.start()
        yield Mutation(right.lineno, start, start + len(words[0]), words[1], kind)


def _instead(node: ast.expr, text: str, kind: str, lines: list[bytes]) -> Iterator[Mutation]:
    if _one_line(node) and node.end_col_offset is not None:
        yield Mutation(node.lineno, node.col_offset, node.end_col_offset, text, kind)


def _one_line(node: ast.stmt | ast.expr) -> bool:
    return node.lineno == node.end_lineno


def _source(node: ast.expr, lines: list[bytes]) -> str:
    return lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
