"""What the progress line says while episodes are lived and steps are made."""

from __future__ import annotations

import time

from palaestra.core.episode import Episode, Key
from palaestra.core.outcome import Outcome
from palaestra.experiment.machine import release_memory
from palaestra.experiment.progress import StageProgress, percent
from palaestra.experiment.setting import Setting
from palaestra.learning.alarms import after, keep, kept
from palaestra.learning.monitors import alarms
from palaestra.learning.reinforce import StepResult


class EpisodeCounter:
    """Counts the episodes of a stage and shows success and speed so far."""

    def __init__(self, setting: Setting, shown: StageProgress) -> None:
        self._shown = shown
        self._started = time.monotonic()
        self._ended: dict[Key, Outcome] = {}
        self._solved = self._scored = self._tokens = 0

    def add(self, episode: Episode) -> None:
        before = self._ended.get(episode.key)  # an episode may be lived again
        if before is not None:
            self._scored -= before.scored
            self._solved -= before.solved
        self._ended[episode.key] = episode.outcome
        self._scored += episode.outcome.scored
        self._solved += episode.outcome.solved
        self._tokens += episode.usage.prompt_tokens + episode.usage.sampled_tokens
        rate = self._tokens / max(time.monotonic() - self._started, 1e-9)
        figures = {"tokens/s": f"{rate:.0f}"}
        if self._scored:
            figures = {"success": percent(self._solved / self._scored), **figures}
        self._shown.show(len(self._ended), figures)


class StepCounter:
    """Logs each step's figures and alarms to the store and shows the telling ones."""

    def __init__(self, setting: Setting, shown: StageProgress) -> None:
        self._setting, self._shown = setting, shown
        self._last = time.monotonic()
        self._history = [values for _, values in setting.store.metrics("rl")]
        self._standing = kept(setting.store, "rl")
        self._said: set[str] = set()

    def add(self, result: StepResult) -> None:
        release_memory(result.step)
        now = time.monotonic()
        values = result.metrics
        values["seconds"], self._last = now - self._last, now
        tokens = values["sampled_tokens"] + values["prompt_tokens"] + values.get("processed", 0)
        values["tokens_per_second"] = tokens / values["seconds"]
        self._setting.store.add_metrics("rl", result.step, values)
        self._setting.count_time()
        figures = {
            "success": percent(values["success"]) if "success" in values else "–",
            "reward": f"{values['reward']:.2f}" if "reward" in values else "–",
            "entropy": f"{values['entropy']:.2f}" if "entropy" in values else "– (no update)",
            "tokens/s": f"{values['tokens_per_second']:.0f}",
        }
        self._shown.show(result.step, figures)
        self._history.append({**values, "step": result.step})
        fired = alarms(self._history)
        if fired or self._standing is None:
            self._standing = after(self._standing or {}, fired)
            keep(self._setting.store, "rl", self._standing)
        for alarm in fired:
            if alarm.name not in self._said:  # once each: a bad state lasts
                self._said.add(alarm.name)
                self._setting.reporter.say(f"[yellow]alarm[/yellow] {alarm.name}: {alarm.message}")
