"""Pictures of what was measured, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, MISSED, INK = "#0072B2", "#D55E00", "#222222"  # of Okabe and Ito's colours


def curves(points: Mapping[str, Sequence[tuple[int, float]]], path: Path) -> None:
    """One small plot per size, both axes logarithmic.

    Args:
        points: name of the size to its (size, milliseconds per sampled token).
        path: an existing file is overwritten.
    """
    from matplotlib.ticker import LogLocator

    figure = _figure(5.0)
    for place, (name, curve) in enumerate(points.items(), 1):
        axes = figure.add_subplot(2, 2, place)
        sizes = [size for size, _ in curve]
        axes.plot(sizes, [cost for _, cost in curve], "o-", color=OURS, ms=4, lw=1.6)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_xlabel(name, fontsize=9)
        axes.set_ylabel("ms per sampled token", fontsize=9)
        _plain(axes)
    _save(figure, path)


def goals(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Return each ratio as a share of its goal, with the spread of the rounds."""
    shown = [row for row in rows if row["goal"] and row["ratio"] is not None]
    figure = _figure(0.8 + 0.32 * len(shown))
    axes = figure.add_subplot()
    for place, row in enumerate(reversed(shown)):
        share = row["ratio"] / row["goal"]
        spread = [[share - row["low"] / row["goal"]], [row["high"] / row["goal"] - share]]
        colour = OURS if share >= 1 else MISSED
        axes.barh(place, share - 1, left=1, color=colour, height=0.6)
        axes.errorbar(share, place, xerr=spread, color=INK, lw=1, capsize=2)
    axes.axvline(1, color=INK, lw=1)
    axes.set_yticks(range(len(shown)), [row["name"] for row in reversed(shown)])
    axes.set_xscale("log")  # from half a goal to a thousand goals
    axes.set_xlabel("ratio as a share of its goal", fontsize=9)
    _plain(axes)
    _save(figure, path)


def _figure(height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _plain(axes: Axes) -> None:
    axes.tick_params(which="both", labelsize=7)
    axes.grid(True, color="#E6E6E6", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=200)
