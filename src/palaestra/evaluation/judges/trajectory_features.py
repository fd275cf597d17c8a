"""Features of a trajectory of tool calls: what was asked, what was called, what is known to work.

After MAG-V (Sengupta et al. 2024), which verifies a trajectory by classical features instead of a
judging model: a question is generated back from what the assistant did and compared with the one
that was asked, and the trajectory is compared with those of questions that are alike. Here the
question is generated back as its words: those by which the same tools were asked for in
trajectories that are known to be right.

All features are computed from the request, the calls and the observations.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palaestra.core.message import ToolCall
from palaestra.core.tool import written_call
from palaestra.evaluation.judges.case import Case

VALUE = re.compile(
    r"'([^'\n]+)'|\"([^\"\n]+)\"|([\w.+-]+@[\w-]+(?:\.\w+)+)|(\d{4}-\d\d-\d\d(?: \d\d:\d\d)?)"
    r"|(?<![\w.])(\d+(?:\.\d+)?)|(?<=[a-z,:;] )([A-Z]\w+(?: [A-Z]\w+)+)"
)
"""Values of a request: what is quoted, addresses, dates, numbers, and names of two words."""
REQUEST = re.compile(r"(?:^|\n)Task:\s*")
PAGING = ("page", "per_page", "sort_by")  # arguments that say how to read, and not what
REFUSED = re.compile(r"\W*error\b", re.IGNORECASE)
NEAREST = 3  # trajectories of similar requests with which the order of calls is compared
RIDGE = 1.0  # the penalty on the squares of the regression's weights
ARGUMENT = " "  # between a tool and its argument
SAY = "say"  # the name of an action that is no call
Words = Mapping[str, float]

FEATURES = (
    "values of the request that no call uses",
    "values of calls that nobody has told",
    "rows that share no value with the request",
    "request unlike the one generated back",
    "tools that such requests need, and that were not called",
    "tools that were called, and that such requests do not need",
    "arguments that such requests need, and that were not given",
    "arguments that were given, and that such requests do not need",
    "order unlike that of similar requests",
    "calls that were refused",
    "calls that were repeated",
    "answer that nobody has told",
)
"""What the features measure: 0 if nothing speaks against the trajectory, and at most 1."""


@dataclass(frozen=True)
class Trajectory:
    """A request, and the calls by which an agent met it."""

    request: str
    calls: tuple[ToolCall, ...]
    seen: tuple[str, ...]  # what each call showed

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(call.name for call in self.calls)

    @cached_property
    def words(self) -> Counter[str]:
        """The words of the request, without its values."""
        return Counter(re.findall(r"[a-z]+", VALUE.sub(" ", self.request).casefold()))

    @cached_property
    def needs(self) -> Counter[str]:
        """How often each tool was called, and each of its arguments given (`tool argument`)."""
        found = Counter(self.names)
        found.update(
            f"{call.name}{ARGUMENT}{name}"
            for call in self.calls
            for name in call.arguments
            if name not in PAGING
        )
        return found


def trajectory_of(case: Case) -> Trajectory:
    """Return the trajectory of an episode; its request is what follows "Task:", or all."""
    calls = [written_call(turn.action) or ToolCall(SAY, {}) for turn in case.turns]
    request = REQUEST.split(case.task)[-1]
    return Trajectory(request, tuple(calls), tuple(turn.observation for turn in case.turns))


class Library:
    """Trajectories that are known to be right, as far as comparisons need them.

    Which tools and arguments a request needs is predicted from the counts of its words, by ridge
    regression: so a request for two things is expected to need what each of them needs.
    """

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.trajectories = list(trajectories)
        self._seen_in = Counter(word for one in trajectories for word in one.words)
        self._vectors = [self._weighed(one.words) for one in self.trajectories]
        self._asked: dict[str, Counter[str]] = {}
        self._used = Counter(name for one in trajectories for name in set(one.names))
        for one in self.trajectories:
            for name in set(one.names):
                self._asked.setdefault(name, Counter()).update(dict.fromkeys(one.words, 1))
        self._words = _counts([one.words for one in trajectories], sorted(self._seen_in))
        self._needs = sorted({key for one in trajectories for key in one.needs})
        self._given = _counts([one.needs for one in trajectories], self._needs)
        kernel = self._words @ self._words.T
        inverse = np.linalg.inv(kernel + RIDGE * np.eye(len(kernel)))
        self._hat, self._dual = kernel @ inverse, inverse @ self._given

    def expected(self, words: Counter[str], without: int | None) -> dict[str, float]:
        """Return how often a request is expected to need each tool and argument.

        Args:
            words: of the request.
            without: the number of a trajectory that is left out, because its request is this one.
        """
        if without is None:
            (row,) = _counts([words], sorted(self._seen_in))
            found = row @ self._words.T @ self._dual
        else:
            own = self._hat[without, without]
            found = (self._hat[without] @ self._given - own * self._given[without]) / (1 - own)
        return dict(zip(self._needs, np.maximum(found, 0).tolist(), strict=True))

    def known(self, names: Sequence[str]) -> float:
        """Return the share of calls whose tools some trajectory uses; 1 without any call."""
        return sum(name in self._used for name in names) / len(names) if names else 1.0

    def similar(self, words: Counter[str], without: int | None) -> list[Trajectory]:
        """Return the trajectories of the most similar requests, by the cosine of their words."""
        wanted = self._weighed(words)
        scored = [
            (-_cosine(wanted, vector), number)
            for number, vector in enumerate(self._vectors)
            if number != without
        ]
        return [self.trajectories[number] for _, number in sorted(scored)[:NEAREST]]

    def likeness_generated_back(self, trajectory: Trajectory, without: int | None) -> float:
        """Return how alike the request and the one generated back from the calls are, in [0, 1].

        The latter has the words of each tool's name, and each word by which requests ask for the
        tool, weighed by the share of its trajectories in which it stands.
        """
        mine = set(trajectory.words) if without is not None else set()
        left_out = set(self.trajectories[without].names) if without is not None else set()
        back: dict[str, float] = {}
        for name in dict.fromkeys(trajectory.names):  # in an order that is always the same
            own = name in left_out
            others = self._used[name] - own
            for word, count in self._asked.get(name, Counter[str]()).items():
                left = count - (own and word in mine)
                if left > 0:
                    back[word] = back.get(word, 0) + left / others
            for word in re.findall(r"[a-z]+", name):
                back[word] = back.get(word, 0) + 1
        return _cosine(self._weighed(trajectory.words), self._weighed(back))

    def _weighed(self, words: Words) -> Words:
        """Weigh words by how few requests have them (tf-idf)."""
        total = len(self.trajectories) + 1
        return {
            word: n * math.log(1 + total / (1 + self._seen_in[word])) for word, n in words.items()
        }


def features(
    trajectory: Trajectory, library: Library, without: int | None = None
) -> NDArray[np.float64]:
    """Return the features of a trajectory.

    Calls that were refused count as refused, and no more. What comes of a comparison counts by the
    share of calls whose tools the library knows: of others it tells nothing.

    Args:
        trajectory: any.
        library: what it is compared with.
        without: the number of a trajectory of the library that is left out: this one, or the one
            that it was made of.

    Returns:
        shape [len(FEATURES)], in the order of `FEATURES`, each in [0, 1].
    """
    refused = [bool(REFUSED.match(text)) for text in trajectory.seen]
    trajectory = _without(trajectory, refused)
    names = trajectory.names
    expected = library.expected(trajectory.words, without)
    tools, arguments = (
        _missing_and_extra(
            {key: n for key, n in expected.items() if (ARGUMENT in key) is of_arguments},
            {key: n for key, n in trajectory.needs.items() if (ARGUMENT in key) is of_arguments},
        )
        for of_arguments in (False, True)
    )
    orders = [
        _same_order(names, other.names) for other in library.similar(trajectory.words, without)
    ]
    known = library.known(names)
    compared = [1 - library.likeness_generated_back(trajectory, without), *tools, *arguments]
    compared.append(1 - max(orders, default=0.0))
    return np.array(
        [
            _unused(trajectory),
            _unknown(trajectory),
            _rows_not_meant(trajectory),
            *(known * one for one in compared),
            sum(refused) / max(1, len(refused)),
            1 - len({str(call) for call in trajectory.calls}) / max(1, len(names)),
            _answer_unknown(trajectory),
        ]
    )


# ── details ──────────────────────────────────────────────────────────────────


def values_of(text: str) -> list[str]:
    """Return the values of a request, in their order."""
    return ["".join(found).strip() for found in VALUE.findall(text)]


def _without(trajectory: Trajectory, refused: Sequence[bool]) -> Trajectory:
    """Return the trajectory without the calls that were refused."""
    if not any(refused):
        return trajectory
    pairs = zip(trajectory.calls, trajectory.seen, refused, strict=True)
    kept = [(call, seen) for call, seen, bad in pairs if not bad]
    calls, seen = tuple(call for call, _ in kept), tuple(text for _, text in kept)
    return Trajectory(trajectory.request, calls, seen)


def _plain(value: Any) -> str:
    """Return a value as it is compared: 25.0 as 25, texts in any case."""
    try:
        return f"{float(value):.15g}"
    except (TypeError, ValueError):
        return " ".join(str(value).casefold().split())


def _arguments(calls: Sequence[ToolCall]) -> Iterator[tuple[str, Any]]:
    for call in calls:
        for name, value in call.arguments.items():
            for one in value if isinstance(value, list) else [value]:
                if not isinstance(one, bool) and name not in PAGING:
                    yield name, one


def _unused(trajectory: Trajectory) -> float:
    """Return the share of the request's values that no call and no row of a call has."""
    used = {_plain(value) for _, value in _arguments(trajectory.calls)}
    used = used.union(*(texts for _, texts in _rows_used(trajectory)))
    wanted = [_plain(value) for value in values_of(trajectory.request)]
    missing = [value for value in wanted if not any(_stands_in(value, text) for text in used)]
    return len(missing) / max(1, len(wanted))


def _unknown(trajectory: Trajectory) -> float:
    """Return the share of values of calls that were neither asked for nor seen before.

    A text that has a value of the request is known: it is what the agent wrote about it.
    """
    told, total, unknown = trajectory.request.casefold(), 0, 0
    wanted = [_plain(value) for value in values_of(trajectory.request)]
    for call, seen in zip(trajectory.calls, trajectory.seen, strict=True):
        for _, value in _arguments([call]):
            plain = _plain(value)
            written = isinstance(value, str) and any(_stands_in(one, plain) for one in wanted)
            total += 1
            unknown += not (written or _stands_in(plain, told))
        told += "\n" + seen.casefold()
    return unknown / max(1, total)


def _stands_in(value: str, text: str) -> bool:
    if re.fullmatch(r"-?[\d.]+", value):
        return re.search(rf"(?<![\d.]){re.escape(value)}(?:\.?0*)(?![\d])", text) is not None
    return value in " ".join(text.split())


def _rows_not_meant(trajectory: Trajectory) -> float:
    """Return the share of ids in calls whose row, as it was seen, has no value of the request."""
    wanted = {_plain(value) for value in values_of(trajectory.request)}
    used = _rows_used(trajectory)
    strange = [
        not any(_stands_in(one, text) for one in wanted for text in texts) for _, texts in used
    ]
    return sum(strange) / max(1, len(used))


def _rows_used(trajectory: Trajectory) -> list[tuple[int, set[str]]]:
    """Return the ids in calls, each with the values of its row as it was seen last."""
    rows: dict[Any, set[str]] = {}
    used = []
    for call, seen in zip(trajectory.calls, trajectory.seen, strict=True):
        for name, value in call.arguments.items():
            if name.endswith("id") and isinstance(value, int) and value in rows:
                used.append((value, rows[value]))
        for row in _rows(seen):
            rows[row["id"]] = {_plain(value) for name, value in row.items() if name != "id"}
    return used


def _rows(seen: str) -> list[dict[str, Any]]:
    """Return the objects with an id in an observation that is JSON."""
    try:
        found = json.loads(seen.partition("\n")[0])
    except ValueError:
        return []
    todo, rows = [found], []
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo += one.values()
            if isinstance(one.get("id"), int):
                rows.append(one)
        elif isinstance(one, list):
            todo += one
    return rows


def _answer_unknown(trajectory: Trajectory) -> float:
    """Return whether the last call tells something that was neither seen nor said before."""
    if not trajectory.calls or not trajectory.calls[-1].arguments:
        return 0.0
    told = "\n".join([trajectory.request, *trajectory.seen[:-1]]).casefold()
    values = [_plain(value) for _, value in _arguments(trajectory.calls[-1:])]
    parts = [part for value in values for part in re.split(r", |; | and ", value) if part]
    return sum(not _stands_in(part, told) for part in parts) / max(1, len(parts))


def _cosine(one: Words, other: Words) -> float:
    dot = sum(weight * other[word] for word, weight in one.items() if word in other)
    size = math.sqrt(sum(w * w for w in one.values()) * sum(w * w for w in other.values()))
    return min(1.0, dot / size) if size else 0.0


def _missing_and_extra(expected: Words, given: Words) -> tuple[float, float]:
    """Return the share of what is expected and not given, and of what is given and not expected."""
    missing = sum(max(0.0, n - given.get(key, 0)) for key, n in expected.items())
    extra = sum(max(0.0, n - expected.get(key, 0.0)) for key, n in given.items())
    return missing / max(1.0, sum(expected.values())), extra / max(1.0, sum(given.values()))


def _counts(rows: Sequence[Counter[str]], columns: Sequence[str]) -> NDArray[np.float64]:
    """Return how often each column stands in each row, shape [rows, columns]."""
    found = np.zeros((len(rows), len(columns)))
    number = {column: at for at, column in enumerate(columns)}
    for at, row in enumerate(rows):
        for key, count in row.items():
            if key in number:
                found[at, number[key]] = count
    return found


def _same_order(one: Sequence[str], other: Sequence[str]) -> float:
    """Return 1 less the edit distance of two sequences over the longer one's length."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (left != right))
    return 1 - row[-1] / max(len(one), len(other), 1)
