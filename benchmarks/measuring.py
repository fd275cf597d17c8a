"""What all benchmarks share: alternating rounds, results, and how they are printed.

A benchmark compares palaestra with a peer (or with a limit) in one run, on the same
machine: rounds alternate, and the figure kept is the median of the rounds' ratios. So
what else the machine does weighs on both sides. A benchmark's file looks like this:

    def measure(options: argparse.Namespace) -> list[Result]: ...

    if __name__ == "__main__":
        run(__doc__, measure)

`run` adds `--json`, prints the results, and ends with code 2 and "not measured: reason"
where a peer cannot be had: never with a number.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import provenance
from peer import Peer, PeerUnavailable
from provenance import commit, cores, machine

__all__ = [
    "Comparison",
    "Peer",
    "PeerUnavailable",
    "Result",
    "alternate",
    "commit",
    "cores",
    "machine",
    "report",
    "run",
]

NOT_MEASURED = 2  # exit code


@dataclass(frozen=True, slots=True)
class Result:
    """One row of docs/results/performance.json."""

    name: str
    ratio: float  # ours over the peer (or over the limit, or a plain share): higher is better
    goal: float | None  # what the ratio is to reach
    low: float  # the smallest ratio of the rounds
    high: float  # the largest
    limit_fraction: float | None = None  # of what this machine can do, see limits.py
    machine: str = field(default_factory=provenance.machine)
    commit: str = field(default_factory=provenance.commit)
    figures: dict[str, float] = field(default_factory=dict)  # medians, the unit in the key

    @property
    def reached(self) -> bool:
        """Whether the goal is reached; true without one."""
        return self.goal is None or self.ratio >= self.goal


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two rates measured in alternation."""

    ratio: float  # median over the rounds of ours / theirs
    low: float
    high: float
    ours: float  # median rate
    theirs: float  # median rate
    ratios: tuple[float, ...]  # of each round


def alternate(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int = 5
) -> Comparison:
    """Measure both once a round, ours first in even rounds, theirs first in odd ones.

    Args:
        ours: measures once and returns a rate (higher is better); warm it up before.
        theirs: the same for the peer, in the same unit.
        rounds: how often.

    Raises:
        ValueError: no round, or a rate that is not positive.
    """
    if rounds < 1:
        raise ValueError(f"{rounds} rounds measure nothing; ask for at least one")
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        if number % 2 == 0:
            mine = ours()
            other = theirs()
        else:
            other = theirs()
            mine = ours()
        if mine <= 0 or other <= 0:
            raise ValueError(f"a rate must be positive; round {number} gave {mine} and {other}")
        pairs.append((mine, other))
    ratios = tuple(mine / other for mine, other in pairs)
    return Comparison(
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        ours=statistics.median(mine for mine, _ in pairs),
        theirs=statistics.median(other for _, other in pairs),
        ratios=ratios,
    )


def report(results: Sequence[Result], as_json: bool) -> None:
    """Print results: JSON (an object for one, an array for several), or a line for each."""
    if as_json:
        rows = [asdict(result) for result in results]
        print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
        return
    width = max((len(result.name) for result in results), default=0)
    for result in results:
        print(_line(result, width))


def run(
    description: str | None,
    measure: Callable[[argparse.Namespace], Sequence[Result]],
    options: Callable[[argparse.ArgumentParser], object] | None = None,
) -> None:
    """The command line of a benchmark.

    Args:
        description: its text for `--help`.
        measure: gets the parsed options (`json` among them) and returns the results.
        options: adds the benchmark's own options to the parser.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    if options is not None:
        options(parser)
    parsed = parser.parse_args()
    try:
        results = measure(parsed)
    except PeerUnavailable as reason:
        print(f"not measured: {reason}", file=sys.stderr)
        raise SystemExit(NOT_MEASURED) from None
    report(results, parsed.json)


def _line(result: Result, width: int) -> str:
    parts = [f"{result.name:<{width}}  {result.ratio:6.2f} ({result.low:.2f} to {result.high:.2f})"]
    if result.goal is not None:
        distance = result.ratio / result.goal - 1
        verdict = "reached" if result.reached else "missed"
        parts.append(f"goal {result.goal:g} {verdict} ({distance:+.0%})")
    if result.limit_fraction is not None:
        parts.append(f"{result.limit_fraction:.0%} of the limit")
    parts += [f"{name} {value:.4g}" for name, value in result.figures.items()]
    return "; ".join(parts)
