"""A filter of answers that would exploit or hang reasoning-gym's verifiers.

Four of them pass an answer to Python's `eval` and five to sympy's `parse_expr`, which also uses
`eval`: a model could start programs, read the reference answer from the verifier's variables, or
write a number that exhausts the memory. Others can be fooled or stopped by certain texts. A refused
answer is replaced by `UNREADABLE`, so it gets the verifier's own score for unreadable answers. The
package's own answers are never refused, nor are the answers that a question asks for. An
"Integral(cos(x), x)", which the verifier accepts as an integral of cos(x), is refused.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from functools import partial

UNREADABLE = "("
LONGEST = 500  # characters of a formula; parsing time grows superlinearly
LONGEST_POLYNOMIAL = 10_000  # the package's own have 5,000 at the highest level
DIGITS = 300  # rough upper bound of the digits of a formula's value
FUNCTIONS = frozenset(
    "Abs abs acos acosh acot asin asinh atan atanh cos cosh cot coth csc erf exp ln log sec sin "
    "sinh sqrt tan tanh".split()
)
CONSTANTS = {"E": math.e, "pi": math.pi}
NESTED = 3  # maximum nesting of function calls
VARIABLE = re.compile(r"[A-Za-z](_?\d)?")


class _Refused(ValueError):
    """A text is not a plain formula, or its value is too large."""


def guarded(title: str, answer: str) -> str:
    """Return the answer if it is safe for the verifier of data set `title`, else `UNREADABLE`."""
    harmless = HARMLESS.get(title)
    return answer if harmless is None or harmless(answer) else UNREADABLE


def is_literal(answer: str) -> bool:
    """Return whether `eval` would only build a value, or would fail to parse the answer."""
    try:
        ast.parse(answer, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return True
    try:
        ast.literal_eval(answer)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def is_formula(answer: str, symbols: bool, longest: int = LONGEST) -> bool:
    """Return whether `parse_expr` would only calculate, quickly; `symbols` allows variables."""
    if len(answer) > longest or not is_moderate(answer):
        return False
    try:
        node = ast.parse(answer, mode="eval").body
        if not symbols and not _is_number(node, frozenset()):
            return False
        _digits(node)
        return _depth(node) <= NESTED
    except (ValueError, SyntaxError, ArithmeticError, MemoryError, RecursionError):
        return False


def is_moderate(answer: str) -> bool:
    """Return whether all exponents of ten are at most 99; larger numbers would be expanded."""
    return re.search(r"[eE][+-]?\d{3}", answer.replace("_", "")) is None


def _depth(node: ast.AST) -> int:
    """Return the depth of nested function calls."""
    inner = max(map(_depth, ast.iter_child_nodes(node)), default=0)
    return inner + isinstance(node, ast.Call)


def _digits(node: ast.expr) -> float:
    """Bound the digits of a formula's value; a variable counts as one digit.

    Raises:
        _Refused: it is not a formula, or its value has too many digits.
    """
    bound: float
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            bound = len(str(value)) + math.log10(max(1.0, abs(value)))
        case ast.Name(id=name) if name in CONSTANTS or VARIABLE.fullmatch(name):
            bound = 1
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            bound = _digits(operand)
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            power = abs(_value(exponent)) if _is_number(exponent) else 1.0
            bound = _digits(base) * max(1.0, power) + _digits(exponent)
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
            less, more = sorted((_digits(left), _digits(right)))
            bound = more + math.log10(1 + 10 ** (less - more))
        case ast.BinOp(op=ast.Mult() | ast.Div(), left=left, right=right):
            bound = _digits(left) + _digits(right)
        case ast.Call(func=ast.Name(id=name), args=[_] | [_, _] as parts, keywords=[]):
            nested = any(isinstance(inner, ast.Call) for part in parts for inner in ast.walk(part))
            if name not in FUNCTIONS or (nested and all(map(_is_number, parts))):
                raise _Refused(name)
            bound = sum(map(_digits, parts))
        case _:
            raise _Refused(ast.dump(node))
    if bound > DIGITS:
        raise _Refused("too large")
    return bound


def _value(node: ast.expr) -> float:
    """Evaluate a constant expression without powers and functions."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _value(left) + _value(right)
        case ast.BinOp(op=ast.Sub(), left=left, right=right):
            return _value(left) - _value(right)
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _value(left) * _value(right)
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            return _value(left) / _value(right)
        case _:
            raise _Refused(ast.dump(node))


def _is_number(node: ast.expr, constants: frozenset[str] = frozenset(CONSTANTS)) -> bool:
    """Return whether a formula contains no variables."""
    called = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    return all(
        part.id in constants or (id(part) in called and bool(constants))
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
    )


HARMLESS: dict[str, Callable[[str], bool]] = {
    "binary_matrix": is_literal,
    "n_queens": is_literal,
    "spiral_matrix": is_literal,
    "string_insertion": is_literal,
    "countdown": partial(is_formula, symbols=False),
    "puzzle24": partial(is_formula, symbols=False),
    "intermediate_integration": partial(is_formula, symbols=True),
    "polynomial_multiplication": partial(is_formula, symbols=True, longest=LONGEST_POLYNOMIAL),
    "simple_integration": partial(is_formula, symbols=True),
    "coin_flip": is_moderate,
    # The distance to "nan" is nan, and min(1.0, nan) is the full score.
    "complex_arithmetic": lambda answer: "nan" not in answer.lower(),
    # Its recursive parser rescans each level: 3,000 characters take ten seconds.
    "propositional_logic": lambda answer: len(answer) <= LONGEST,
    # They expand "U1000000000" into a thousand million turns or moves.
    "rubiks_cube": lambda answer: re.search(r"\d{3}", answer) is None,
    "rush_hour": lambda answer: re.search(r"\d{3}", answer) is None,
}
