"""An episode turn by turn, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from palaestra.core.episode import Episode
from palaestra.core.graph import Call
from palaestra.evaluation.reports.transcript import plain, turns
from palaestra.evaluation.statistics.conversation import (
    MEMBER_HEADS,
    Conversation,
    conversation,
    member_rows,
)
from palaestra.evaluation.statistics.player_results import ending, forfeit_reason


def show_episode(
    episode: Episode, tokens: Callable[[Call], list[str]] | None, console: Console
) -> None:
    """Print observations, actions and rewards; with `tokens`, also each sampled token."""
    console.print(str(episode.key), markup=False, style="bold", end="", soft_wrap=True)
    named = f"  task {episode.task.id} of {episode.task.environment}"
    console.print(named, markup=False, soft_wrap=True)
    used = episode.usage
    reward = "" if episode.results else f"reward {episode.reward:g}, "
    console.print(
        f"{episode.agent}: {ending(episode)}, {reward}{used.turns} turns, "
        f"{f'{used.tried} tried, ' if used.tried else ''}{used.sampled_tokens} tokens sampled, "
        f"{used.seconds:.1f} s\n",
        markup=False,
    )
    if episode.outcome.detail:
        console.print(plain(episode.outcome.detail), markup=False)
    for player, one in episode.players.items():
        why = f", forfeited: {forfeit_reason(one.outcome)}" if one.forfeited else ""
        invalid = f", {one.invalid_actions} invalid" if one.invalid_actions else ""
        text = f"{player}: return {one.total:+g}, {one.turns} turns{invalid}{why}"
        console.print(plain(text), markup=False, soft_wrap=True)
    if (found := conversation(episode)).players:
        _show_members(found, console)
    chosen: dict[int, list[Call]] = {}
    for call in episode.calls:
        acted = (s.index for s in episode.steps if s.calls_before > call.index)
        chosen.setdefault(next(acted, len(episode.steps)), []).append(call)
    for number, turn in enumerate(turns(episode)):
        console.print(f"sees   {turn.observation}", markup=False, style="dim", soft_wrap=True)
        if number < len(episode.steps):
            notes = ["at the same time"] if turn.together else []
            notes += [f"reward {turn.reward:g}"] if turn.reward else []
            notes += [] if turn.valid else ["not understood"]
            notes += [f"forfeits: {turn.forfeit}"] if turn.forfeit else []
            note = f"   ({', '.join(notes)})" if notes else ""
            who = f"{turn.player}: " if turn.player else ""
            line = f"{number + 1:4}   {who}{turn.action}{note}"
            console.print(line, markup=False, style="bold" if turn.valid else "red", soft_wrap=True)
        for call in chosen.get(number, []) if tokens else []:
            _show_tokens(call, tokens(call) if tokens else [], console)
    console.print(f"\nend: {ending(episode)}", markup=False)


def _show_members(found: Conversation, console: Console) -> None:
    """Print what each of several players spent and said as a table, and below it what it did."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold")
    *numbers, _, _ = MEMBER_HEADS
    for name in numbers:
        made.add_column(name, justify="left" if name == "player" else "right")
    rows = member_rows(found)
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row[:-2]))
    console.print(made)
    for player, *_, did, sent in rows:
        text = f"{player}: {did}{f'; sent: {sent}' if sent else ''}"
        console.print(plain(text), markup=False, soft_wrap=True)
    console.print()


def _show_tokens(call: Call, tokens: Sequence[str], console: Console) -> None:
    head = f"       call {call.index}: {call.policy} version {call.version}, {call.finish}"
    console.print(head, markup=False, style="cyan")
    if not tokens:
        console.print("       (no tokens were recorded)", style="dim")
    entropies = call.entropies or (None,) * len(call.logprobs)
    for token, logprob, entropy in zip(tokens, call.logprobs, entropies, strict=False):
        entropy_text = "" if entropy is None else f"  entropy {entropy:.3f}"
        console.print(f"       {logprob:8.3f}{entropy_text}  {token!r}", markup=False)
