"""Progress lines and metrics of a stage, episode by episode or step by step."""

from __future__ import annotations

import time
from collections.abc import Mapping

from palaestra.core.episode import Episode, Key
from palaestra.core.outcome import Outcome
from palaestra.learning.loop.alarms import after, store_alarms, stored_alarms
from palaestra.learning.loop.monitors import alarms
from palaestra.learning.loop.reinforce import StepResult
from palaestra.runtime.machine import release_memory
from palaestra.runtime.progress import StageProgress, percent
from palaestra.training.run_context import RunContext
from palaestra.training.time_limit import seconds_left


class EpisodeCounter:
    """A count of a stage's episodes that shows success and speed so far."""

    def __init__(self, context: RunContext, shown: StageProgress) -> None:
        self._shown = shown
        self._started = time.monotonic()
        self._ended: dict[Key, Outcome] = {}
        self._solved = self._scored = self._tokens = 0

    def add(self, episode: Episode) -> None:
        before = self._ended.get(episode.key)  # an episode may run again
        if before is not None:
            self._scored -= before.scored
            self._solved -= before.solved
        self._ended[episode.key] = episode.outcome
        self._scored += episode.outcome.scored
        self._solved += episode.outcome.solved
        self._tokens += episode.usage.prompt_tokens + episode.usage.sampled_tokens
        rate = self._tokens / max(time.monotonic() - self._started, 1e-9)
        figures = {"tokens/s": f"{rate:.0f}"}
        if self._scored and not episode.results:  # players have a return each
            figures = {"success": percent(self._solved / self._scored), **figures}
        self._shown.show(len(self._ended), figures)


class StepCounter:
    """A recorder of each step's metrics and alarms that shows the main ones."""

    def __init__(self, context: RunContext, shown: StageProgress) -> None:
        self._context, self._shown = context, shown
        self._last = time.monotonic()
        self._history = [values for _, values in context.store.metrics(context.record)]
        self._standing = stored_alarms(context.store, context.record)
        self._announced: set[str] = set()

    def add(self, result: StepResult) -> None:
        release_memory(result.step)
        now = time.monotonic()
        values = result.metrics
        values["seconds"], self._last = now - self._last, now
        tokens = values["sampled_tokens"] + values["prompt_tokens"] + values.get("processed", 0)
        values["tokens_per_second"] = tokens / values["seconds"]
        self._context.add_metrics(self._context.record, result.step, values)
        self._context.accounts.count_time()
        figures = {
            **_earned(values),
            "entropy": f"{values['entropy']:.2f}" if "entropy" in values else "– (no update)",
            "tokens/s": f"{values['tokens_per_second']:.0f}",
        }
        self._shown.show(result.step, figures, most=seconds_left(self._context))
        self._history.append({**values, "step": result.step})
        fired = alarms(self._history)
        if fired or self._standing is None:
            self._standing = after(self._standing or {}, fired)
            store_alarms(self._context.store, self._context.record, self._standing)
        for alarm in fired:
            if alarm.name not in self._announced:  # once each: a bad state lasts
                self._announced.add(alarm.name)
                self._context.reporter.say(f"[yellow]alarm[/yellow] {alarm.name}: {alarm.message}")


def _earned(values: Mapping[str, float]) -> dict[str, str]:
    """Return success and reward of a step's rollouts, or the mean return of each player."""
    found = {name.partition("/")[2]: v for name, v in values.items() if name.startswith("return/")}
    if found and "success" not in values:
        return {player: f"{value:+.2f}" for player, value in found.items()}
    return {
        "success": percent(values["success"]) if "success" in values else "–",
        "reward": f"{values['reward']:.2f}" if "reward" in values else "–",
    }
