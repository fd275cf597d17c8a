"""The meaning of some bytes of the machine's memory, as text.

The addresses are those of AtariARI (Anand et al. 2019). Each one used here was checked against the
picture or the score of the running game; the tests repeat this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Ram = Sequence[int]  # 128 bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """How a game's memory is rendered as text."""

    note: str  # an explanation for the instructions
    render: Callable[[Ram], str]


def _pong(ram: Ram) -> str:
    ball = f"Ball x {ram[49]} y {ram[54]}" if ram[49] and ram[54] else "No ball"
    return (
        f"You x {ram[46]} y {ram[51]}, other x {ram[45]} y {ram[50]}. {ball}. "
        f"Points {ram[14]}, other {ram[13]}."
    )


def _breakout(ram: Ram) -> str:
    ball = f"Ball x {ram[99]} y {ram[101]}" if ram[101] else "No ball"
    return f"You x {ram[72]}. {ball}."


def _boxing(ram: Ram) -> str:
    return (
        f"You x {ram[32]} y {ram[34]}, other x {ram[33]} y {ram[35]}. "
        f"Points {decimal(ram[18])}, other {decimal(ram[19])}."
    )


def _freeway(ram: Ram) -> str:
    cars = ", ".join(str(ram[108 + lane]) for lane in range(10))
    return f"You y {ram[14]}. Cars x {cars}."


READINGS = {
    "Pong": Reading(
        "Places grow rightwards and downwards. A paddle reaches from its y to y + 15; "
        "'right' moves yours up, 'left' down. First to 21 points wins.",
        _pong,
    ),
    "Breakout": Reading(
        "Places grow rightwards and downwards. Your paddle reaches from its x to x + 16; "
        "'fire' brings a ball.",
        _breakout,
    ),
    "Boxing": Reading(
        "Places grow rightwards and downwards; 'fire' hits.",
        _boxing,
    ),
    "Freeway": Reading(
        "You start at y 6 and cross 10 lanes of 16 upwards; you are at x 48 of the cars, which "
        "are told from the lowest lane to the highest.",
        _freeway,
    ),
}


def decimal(byte: int) -> int:
    """Decode a byte of two decimal digits (BCD); Boxing's knockout code means 100."""
    return 100 if byte == 0xC0 else 10 * (byte >> 4) + (byte & 15)


def hex_dump(ram: Ram) -> str:
    """Return all bytes in hex, 16 per group."""
    digits = bytes(ram).hex()
    return " ".join(digits[start : start + 32] for start in range(0, len(digits), 32))
