"""Learning curves: success, reward and entropy over the course of training.

The dots are the training rollouts of each step; the horizontal lines are the success on
held-out tasks before and after training, with 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from palaestra.evaluation.statistics.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Metrics = Sequence[tuple[int, Mapping[str, float]]]
"""One pair of (step, values by name) per update, in chronological order."""

Array = NDArray[np.float64]

# Okabe and Ito's colours: distinct for colour-blind readers and in print.
COLOURS = {"base": "#6E6E6E", "imitation": "#D55E00", "rl": "#0072B2"}
OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#0072B2", "#D55E00")  # of other versions, in turn
TRAINING = "#56B4E9"
MODELLED = "#CC79A7"
INK = "#222222"
RETURN = "return/"  # how the metrics of players' mean returns begin


def series(metrics: Metrics, name: str) -> tuple[Array, Array]:
    """Return steps and values of one metric; of a step recorded twice, the later record counts."""
    values = {
        step: float(row[name]) for step, row in metrics if name in row and isfinite(row[name])
    }
    steps = sorted(values)
    return np.array(steps, dtype=np.float64), np.array([values[s] for s in steps])


@dataclass(frozen=True, slots=True)
class ModelledReward:
    """A reward model's mean score by step, moved into the range of success: the unit is its own."""

    steps: Array
    values: Array  # in [0, 1]: 0 where it is lowest
    label: str

    @classmethod
    def of(cls, metrics: Metrics) -> ModelledReward | None:
        """Read it from the metrics of a stage; None if no reward model took part.

        Beside the true success it shows over-optimisation: the model's score rises, and success
        does not (Gao et al. 2023).
        """
        steps, scores = series(metrics, "modelled_reward")
        if not len(steps):
            return None
        low, high = float(scores.min()), float(scores.max())
        values = (scores - low) / (high - low) if high > low else np.full_like(scores, 0.5)
        return cls(steps, values, f"modelled reward, {low:.2f} to {high:.2f}")


def curve_stage(stages: Sequence[str], metrics: Callable[[str], Metrics]) -> str:
    """Return the stage whose learning curve is shown: the last one with rollouts to learn from."""
    found = [stage for stage in stages if any(_of_rollouts(row) for _, row in metrics(stage))]
    return found[-1] if found else "rl"


def _of_rollouts(row: Mapping[str, float]) -> bool:
    return "success" in row or any(name.startswith(RETURN) for name in row)


def returns(metrics: Metrics) -> dict[str, tuple[Array, Array]]:
    """Return steps and mean returns of each of several players; empty where success is shared."""
    if any("success" in row for _, row in metrics):
        return {}
    names = dict.fromkeys(n for _, row in metrics for n in row if n.startswith(RETURN))
    return {name.removeprefix(RETURN): series(metrics, name) for name in names}


def colour_of(policy: str, policies: Iterable[str]) -> str:
    """Return the colour of a tested version of the policy, among all that are shown."""
    others = [name for name in policies if name not in COLOURS]
    return COLOURS.get(policy) or OTHERS[others.index(policy) % len(OTHERS)]


def smooth(values: Array) -> Array:
    """Smooth by a centred Gaussian, a twentieth of the run wide, truncated at the ends."""
    if len(values) < 3:
        return values
    positions = np.arange(len(values))
    width = max(1.0, len(values) / 20)
    weights = np.exp(-0.5 * ((positions[:, None] - positions[None, :]) / width) ** 2)
    smoothed: Array = weights @ values / weights.sum(axis=1)
    return smoothed


def learning_curve_png(
    metrics: Metrics,
    path: Path,
    *,
    held_out: Mapping[str, Interval],
    title: str = "",
) -> None:
    """Draw the curve of an RL stage as a PNG file.

    Args:
        metrics: values of each step; `success`, `reward` and `entropy` are drawn, and beside the
            first `modelled_reward`, if a reward model took part. Of games between players, the
            mean return of each is drawn instead of success.
        path: the file to write; an existing one is overwritten.
        held_out: success of each tested version of the policy on the held-out tasks.
        title: one line above the figure.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 5.0), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(2, 2, height_ratios=[2.6, 1])
        if players := returns(metrics):
            _draw_returns(figure.add_subplot(grid[0, :]), players, title)
        else:
            _draw_success(figure.add_subplot(grid[0, :]), metrics, held_out, title)
        _draw_small(figure.add_subplot(grid[1, 0]), metrics, "reward", "reward per episode")
        _draw_small(figure.add_subplot(grid[1, 1]), metrics, "entropy", "entropy (nats per token)")
        figure.savefig(path, format="png", dpi=200)


def learning_curve_text(
    metrics: Metrics, width: int, *, held_out: Mapping[str, Interval] | None = None
) -> str:
    """Render the success curve as text of at most `width` columns; empty without any step."""
    import plotext

    steps, success = series(metrics, "success")
    if not len(steps):
        return ""
    plotext.terminal.limit(False, False)  # use the caller's width, not this terminal's
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(max(40, min(width, 110)), 17)
    figure.draw(figure.signal(steps.tolist(), (100 * success).tolist(), marker="·"))
    line = figure.signal(steps.tolist(), (100 * smooth(success)).tolist(), marker="braille")
    figure.draw(line.lines())
    legend = ["· training rollouts", "⠒ smoothed"]
    if (modelled := ModelledReward.of(metrics)) is not None:
        heights = (100 * modelled.values).tolist()
        figure.draw(figure.signal(modelled.steps.tolist(), heights, marker="x"))
        legend.append(f"x {modelled.label}")
    for name, interval in (held_out or {}).items():
        style, sign = _LINES.get(name, ("default", "─"))
        figure.line(100 * interval.mean, style=style)
        legend.append(f"{sign} {name} {100 * interval.mean:.0f} %")
    figure.ruler("y").lim(0, 100)
    ticks = sorted({int(tick) for tick in np.linspace(steps[0], steps[-1], 6).round()})
    figure.ruler("x").ticks(ticks, [str(tick) for tick in ticks])
    figure.label("RL step", "x")
    figure.title("success (%)")
    rendered = str(plotext.uncolorize(str(figure.build())))
    figure.clear()
    lines = [row.rstrip() for row in rendered.splitlines()]
    return "\n".join([*lines, "  " + "   ".join(legend)])


# ── details ──────────────────────────────────────────────────────────────────

_LINES = {"base": ("dotted", "┈"), "imitation": ("default", "─"), "rl": ("double", "═")}

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "figure.facecolor": "white",
}


def _draw_success(
    axes: Axes, metrics: Metrics, held_out: Mapping[str, Interval], title: str
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    steps, success = series(metrics, "success")
    for name, interval in held_out.items():
        colour = colour_of(name, held_out)
        axes.axhspan(100 * interval.low, 100 * interval.high, color=colour, alpha=0.10, lw=0)
        axes.axhline(100 * interval.mean, **{**_HELD_OUT, "color": colour})
    axes.scatter(
        steps, 100 * success, s=16, color=TRAINING, alpha=0.75, lw=0, label="training rollouts"
    )
    axes.plot(steps, 100 * smooth(success), color=COLOURS["rl"], lw=2.2, label="smoothed")
    if (modelled := ModelledReward.of(metrics)) is not None:
        axes.plot(
            modelled.steps, 100 * modelled.values, color=MODELLED, lw=1.6, label=modelled.label
        )
    axes.set_ylim(0, 100)
    _frame(axes, steps)
    axes.set_ylabel("success (%)")
    axes.set_xlabel("RL step")
    axes.set_title(title, loc="left", fontweight="bold", pad=20)
    positions = _spread({name: 100 * interval.mean for name, interval in held_out.items()}, gap=6.5)
    for name, position in positions.items():
        axes.annotate(
            f"{'RL' if name == 'rl' else name} {100 * held_out[name].mean:.0f} %",
            xy=(1.01, position / 100),
            xycoords="axes fraction",
            color=colour_of(name, held_out),
            fontweight="bold",
            va="center",
            annotation_clip=False,
        )
    plotted, labels = axes.get_legend_handles_labels()
    handles: list[Any] = [*plotted]
    if held_out:
        handles.append((Patch(color="#888888", alpha=0.2, lw=0), Line2D([], [], **_HELD_OUT)))
        labels.append("held-out tasks, 95 % interval")
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.985),
        ncols=3,
        fontsize=8,
        handlelength=1.8,
        frameon=False,
    )


def _draw_returns(axes: Axes, players: Mapping[str, tuple[Array, Array]], title: str) -> None:
    for number, (player, (steps, values)) in enumerate(players.items()):
        colour = OTHERS[number % len(OTHERS)]
        axes.scatter(steps, values, s=16, color=colour, alpha=0.5, lw=0)
        axes.plot(steps, smooth(values), color=colour, lw=2.2, label=player)
    _frame(axes, next(iter(players.values()))[0])
    axes.set_ylabel("mean return")
    axes.set_xlabel("RL step")
    axes.set_title(title, loc="left", fontweight="bold", pad=20)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.985), ncols=3, fontsize=8, frameon=False)


_HELD_OUT: dict[str, Any] = {"color": "#666666", "lw": 1.3, "ls": (0, (5, 2))}


def _draw_small(axes: Axes, metrics: Metrics, name: str, title: str) -> None:
    steps, values = series(metrics, name)
    axes.scatter(steps, values, s=6, color=TRAINING, alpha=0.7, lw=0)
    axes.plot(steps, smooth(values), color=COLOURS["rl"], lw=1.5)
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel("RL step")
    axes.locator_params(axis="y", nbins=4)
    _frame(axes, steps)
    if not len(steps):
        axes.text(0.5, 0.5, "not recorded", ha="center", va="center", transform=axes.transAxes)


def _frame(axes: Axes, steps: Array) -> None:
    """Set whole steps on the horizontal axis, with half a step of margin at both ends."""
    from matplotlib.ticker import MaxNLocator

    if len(steps):
        axes.set_xlim(steps[0] - 0.5, steps[-1] + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True))


def _spread(positions: Mapping[str, float], gap: float) -> dict[str, float]:
    """Move labels apart until `gap` lies between neighbours, within 2 … 98."""
    order = sorted(positions, key=lambda name: positions[name])
    moved = [positions[name] for name in order]
    for _ in range(50):
        for i in range(len(moved) - 1):
            lacking = gap - (moved[i + 1] - moved[i])
            if lacking > 0:
                moved[i] -= lacking / 2
                moved[i + 1] += lacking / 2
        moved = [min(98.0, max(2.0, position)) for position in moved]
    return dict(zip(order, moved, strict=True))
