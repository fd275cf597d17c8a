"""Decisions by votes: plurality of proposals, approval, and ranked ballots (Borda 1781)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)


def plain(text: str) -> str:
    """Return a proposal as it is compared with others: without case, spaces and end marks.

    Of one that reasons and ends with `<answer>the answer</answer>`, it is the last answer: two that
    come to the same answer in other words agree (self-consistency, Wang et al. 2022).
    """
    answers = ANSWER.findall(text)
    return " ".join((answers[-1] if answers else text).casefold().split()).strip(" .!")


def majority(proposals: Sequence[str]) -> str:
    """Return the most frequent proposal, among equally frequent ones the first."""
    counts = Counter(map(plain, proposals))
    most = max(counts.values())
    return next(text for text in proposals if counts[plain(text)] == most)


def agree(proposals: Sequence[str]) -> bool:
    """Return whether all proposals are equal."""
    return len(set(map(plain, proposals))) == 1


def different(proposals: Sequence[str]) -> list[str]:
    """Return the proposals, each once, in the order of the first of each.

    Ballots number them from 1.
    """
    found: dict[str, str] = {}
    for text in proposals:
        found.setdefault(plain(text), text)
    return [*found.values()]


def parse_ballot(text: str, count: int) -> list[int] | None:
    """Return the numbers in a ballot, from 0 and each once; None if it is no ballot.

    Args:
        text: numbers from 1 to `count`, the best first: "2 > 1", "1, 3" or "none".
        count: of proposals.
    """
    if plain(text) == "none":
        return []
    if re.search(r"[a-z]", text.casefold()):
        return None
    numbers = [int(found) - 1 for found in re.findall(r"\d+", text)]
    if not numbers or any(not 0 <= number < count for number in numbers):
        return None
    return list(dict.fromkeys(numbers))


def parse_ratings(text: str, count: int) -> list[float] | None:
    """Return `count` ratings from 0 to 5, such as those in "5, 0, 3.5"; None if they are others."""
    if re.search(r"[a-z-]", text.casefold()):
        return None
    ratings = [float(found) for found in re.findall(r"\d+(?:\.\d+)?", text)]
    if len(ratings) != count or max(ratings) > 5:
        return None
    return ratings


def approval(ballots: Sequence[Sequence[int]], count: int) -> int:
    """Return the proposal that most ballots approve, among equals the first."""
    votes = [sum(number in ballot for ballot in ballots) for number in range(count)]
    return votes.index(max(votes))


def borda(ballots: Sequence[Sequence[int]], count: int) -> int:
    """Return the proposal with the most points, among equals the first.

    A ballot gives `count - 1` points to its best proposal, one less to each next one, and shares
    those that are left equally among proposals that it does not name.
    """
    points = [0.0] * count
    for ballot in ballots:
        for place, number in enumerate(ballot):
            points[number] += count - 1 - place
        unnamed = [number for number in range(count) if number not in ballot]
        for number in unnamed:
            points[number] += (len(unnamed) - 1) / 2
    return points.index(max(points))
