"""Transcripts: two agents' episodes on one task, side by side.

Model output may contain any characters; here it never moves the cursor, opens markup,
breaks a table or is hidden from the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich import box
from rich.table import Table
from rich.text import Text

from palaestra.core.environment import Observation
from palaestra.core.episode import Episode, together
from palaestra.evaluation.statistics.player_results import ending, forfeit_reason
from palaestra.runtime.visible_text import visible

LONGEST_TEXT = 600  # characters of one observation or action; untrained models ramble


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as a reader sees it."""

    observation: str  # before the action
    action: str  # empty in the last row, which only shows the final observation
    reward: float
    valid: bool  # whether the action was valid
    player: str = ""  # who acted, of several players
    together: bool = False  # at the same time as the player before
    late: bool = False  # the player did not decide in time
    forfeit: str = ""  # why the player forfeits here; empty: it does not


def turns(episode: Episode) -> list[Turn]:
    """Return the turns of an episode, then one with the final observation and no action."""
    if episode.observation is None:
        return []
    rows: list[Turn] = []
    seen = _seen(episode.observation)
    for before, step in zip((None, *episode.steps), episode.steps, strict=False):
        words = str(step.action.call) if step.action.call is not None else step.action.text
        turn = Turn(
            observation=plain(seen),
            action=plain(words),
            reward=step.transition.reward,
            valid=step.transition.valid or step.forfeit is not None,
            player=step.before.turn or "",
            together=together(before, step),
            late=step.late,
            forfeit="" if step.forfeit is None else forfeit_reason(step.forfeit.outcome),
        )
        rows.append(turn)
        seen = _seen(step.transition.observation)
    rows.append(Turn(plain(seen), "", 0.0, True))
    return rows


def _seen(observation: Observation) -> str:
    """Return the observation's text, with a mark for each image."""
    marks = (f"[{image.media_type}, {image.size:,} bytes]" for image in observation.images)
    return "\n".join([observation.text, *marks])


def plain(text: str) -> str:
    """Return `text` on one line, with marks for invisible characters, cut at LONGEST_TEXT."""
    line = " ".join(visible(text).split())
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"


def choose_pair(
    before: Sequence[Episode], after: Sequence[Episode]
) -> tuple[Episode, Episode] | None:
    """Choose the task that shows best what was learned: failed before, solved fastest after.

    Failing that, choose a task solved both times (the largest saving of turns first), then any
    task with both episodes. Unscored episodes are never shown. Equal inputs give the same choice;
    None if no task has both.
    """
    pairs: dict[int, tuple[Episode, Episode]] = {}
    firsts = _first_scored(before)
    for group, later in _first_scored(after).items():
        if group in firsts:
            pairs[group] = (firsts[group], later)
    if not pairs:
        return None
    return min(pairs.values(), key=_preference)


def table(before: Episode, after: Episode, *, limit: int | None = None) -> Table:
    """Make a table of the two episodes in two columns, one row per turn.

    Args:
        before: the episode on the left.
        after: the episode on the right.
        limit: rows shown; later turns are counted instead. None shows all.
    """
    grid = Table(box=box.ROUNDED, expand=True)
    for title, episode in (("before", before), ("after", after)):
        heading = Text(f"{title} ({_stage(episode)}): ")
        heading.append(ending(episode), _style(episode))
        grid.add_column(heading, ratio=1, overflow="fold")
    left, right = turns(before), turns(after)
    for index, (a, b) in enumerate(zip_longest(left, right)):
        if limit is not None and index == limit:
            grid.add_row(_rest(len(left) - index), _rest(len(right) - index))
            break
        grid.add_row(_cell(index, a), _cell(index, b))
    grid.add_section()
    grid.add_row(_end(before), _end(after))
    return grid


def side_by_side_markdown(before: Episode, after: Episode, *, limit: int | None = None) -> str:
    """Make the same table in Markdown."""
    left, right = turns(before), turns(after)
    lines = [
        f"| turn | before ({_stage(before)}) | after ({_stage(after)}) |",
        "| ---: | --- | --- |",
    ]
    for index, (a, b) in enumerate(zip_longest(left, right)):
        if limit is not None and index == limit:
            cells = [_rest(len(column) - index).plain for column in (left, right)]
            lines.append(f"| … | {cells[0]} | {cells[1]} |")
            break
        lines.append(f"| {index + 1} | {_markdown_cell(a)} | {_markdown_cell(b)} |")
    ends = [_escape(_end(episode).plain) for episode in (before, after)]
    lines.append(f"| end | **{ends[0]}** | **{ends[1]}** |")
    return "\n".join(lines)


# ── details ──────────────────────────────────────────────────────────────────


def _first_scored(episodes: Sequence[Episode]) -> dict[int, Episode]:
    """Return, for each task, the scored episode with the lowest member."""
    first: dict[int, Episode] = {}
    for episode in sorted(episodes, key=lambda e: (e.key.group, e.key.member)):
        if episode.outcome.scored:
            first.setdefault(episode.key.group, episode)
    return first


def _preference(pair: tuple[Episode, Episode]) -> tuple[int, int, int]:
    """Return the sort key of a pair, lower is better: contrast, turns, task number."""
    before, after = pair
    group = after.key.group
    if after.outcome.solved and not before.outcome.solved:
        return (0, len(after.steps), group)
    if after.outcome.solved:
        return (1, len(after.steps) - len(before.steps), group)
    return (2, len(before.steps) + len(after.steps), group)


def _stage(episode: Episode) -> str:
    """Return the policy's name in phases such as "test/base"."""
    return episode.key.phase.rpartition("/")[2]


def _cell(index: int, turn: Turn | None) -> Text:
    text = Text()
    if turn is None:
        return text
    text.append(turn.observation, "dim")
    if turn.action or not turn.valid:
        text.append(f"\n{index + 1} {turn.player}> ", "bold")
        text.append(turn.action or "(empty reply)", "bold" if turn.valid else "red")
    if not turn.valid:
        text.append("  invalid", "red")
    if turn.late:
        text.append("  too late", "red")
    if turn.forfeit:
        text.append(f"\n{index + 1} {turn.player} forfeits: {turn.forfeit}", "red")
    if turn.reward:
        text.append(f"  reward {turn.reward:+.2f}", "green" if turn.reward > 0 else "red")
    return text


def _rest(count: int) -> Text:
    """Return how many turns were left out; the last row of an episode is not a turn."""
    count = max(0, count - 1)
    return Text(f"… {count} more turn{'s' if count != 1 else ''}" if count else "", "dim")


def _end(episode: Episode) -> Text:
    count = len(episode.steps)
    reward = "" if episode.results else f", reward {episode.reward:.2f}"
    text = f"{ending(episode)} after {count} turn{'s' if count != 1 else ''}{reward}"
    return Text(text, _style(episode))


def _style(episode: Episode) -> str:
    if episode.results:
        return ""
    return "green" if episode.outcome.solved else "red"


def _markdown_cell(turn: Turn | None) -> str:
    if turn is None:
        return ""
    parts = [_escape(turn.observation)]
    if turn.action or not turn.valid:
        player = _escape(turn.player)
        parts.append(f"**{player}> {_escape(turn.action) or '(empty reply)'}**")
    if not turn.valid:
        parts[-1] += " *(invalid)*"
    if turn.late:
        parts[-1] += " *(too late)*"
    if turn.forfeit:
        parts.append(f"*{_escape(turn.player)} forfeits: {_escape(turn.forfeit)}*")
    if turn.reward:
        parts[-1] += f" reward {turn.reward:+.2f}"
    return "<br>".join(parts)


def _escape(text: str) -> str:
    """Escape `text` so that Markdown shows it literally, within a table cell."""
    for mark in "\\`*_{}[]#|~":
        text = text.replace(mark, "\\" + mark)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
