"""Comparison of phases, each written RUN:PHASE, with the numbers that pages show.

A phase includes all below it: `eval/test/react/tiny` includes its cells in every environment.

Only the headers of episodes are read, so that a phase may be large; the last actions of episodes
are read for small phases only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from starlette.exceptions import HTTPException

from palaestra.core.episode import Episode, Key, PlayerResult
from palaestra.evaluation.reports.run_diff import identity
from palaestra.evaluation.statistics.intervals import Interval, success_interval
from palaestra.evaluation.statistics.player_results import (
    PlayerScore,
    has_success,
    player_scores,
)
from palaestra.store.ranges import latest_steps, phase_headers
from palaestra.store.recorded_players import phase_players
from palaestra.viewer.facts import TESTED, money_per_episode, policy_name, stage_of_step
from palaestra.viewer.site import Site, episode_url
from palaestra.viewer.texts import line
from palaestra.viewer.turns import act_of

LATEST = 3000  # episodes of a phase up to which their last actions are read
ENDING = 3  # last actions of an episode
CLUSTERS = 12  # shown of each kind


@dataclass(frozen=True, slots=True)
class ComparedPhase:
    """One phase of one run, with the phases below it."""

    run: str
    phase: str
    phases: tuple[str, ...]  # with its episodes
    episodes: tuple[Episode, ...]  # without their calls and steps
    endings: Mapping[Key, str]  # the last actions of each; empty for a large phase
    money: Mapping[str, float]  # per episode, by phase; phases of unknown cost are missing
    policy: str  # "AGENT with MODEL" of its run; empty if the phase names them
    players: Mapping[Key, Mapping[str, PlayerResult]]  # of its games

    def has_success(self, episode: Episode) -> bool:
        """Return whether an episode has one success, of its only player or of all."""
        players = self.players.get(episode.key, {})
        return not players or has_success(episode.task.environment, players)

    @property
    def name(self) -> str:
        """The name in URLs: RUN:PHASE."""
        return f"{self.run}:{self.phase}"

    def url(self, key: Key) -> str:
        """Return the URL of an episode of this phase."""
        return episode_url(self.run, key)


@dataclass(frozen=True, slots=True)
class Standing:
    """A phase's results in one environment."""

    success: Interval | None
    tasks: int
    episodes: int
    faults: int  # not scored
    tokens: float  # read and sampled per task, repeats averaged
    seconds: float  # per task, repeats averaged
    turns: float  # per task, repeats averaged
    money: float | None  # per episode; None if a part of it is unknown
    players: Mapping[str, PlayerScore]  # empty for a single player


@dataclass(frozen=True, slots=True)
class Tile:
    """One task in all compared phases."""

    task: str
    shares: tuple[float | None, ...]  # solved share of its scored episodes, by phase
    urls: tuple[str, ...]  # of its first episode; empty if a phase lacks the task


@dataclass(frozen=True, slots=True)
class Cluster:
    """Failures with a common property."""

    kind: str  # "outcome", "environment" or "last actions"
    what: str
    counts: tuple[int, ...]  # by phase
    examples: tuple[tuple[str, str], ...]  # key and URL


def compared_phase(site: Site, name: str) -> ComparedPhase:
    """Read the phase RUN:PHASE; raise HTTPException if there is none."""
    run, colon, phase = name.partition(":")
    with site.run(run) as opened:
        database = opened.database
        known = database.phases()
        if not colon:
            phase = (evaluated(known) or [""])[-1]
        phases = tuple(name for name in known if name == phase or name.startswith(f"{phase}/"))
        episodes = [header for name in phases for header in phase_headers(database, name)]
        if not episodes:
            existing = ", ".join(known[:20]) or "none yet"
            raise HTTPException(404, f"The run '{run}' has no phase '{phase}'; it has: {existing}.")
        costs = {name: money_per_episode(database, name) for name in phases}
        policy = "" if names_policy(phase) else policy_name(database)
        players = {e.key: of for name in phases for e, of in phase_players(database, name)}
        endings = {}
        if len(episodes) <= LATEST:
            for name in phases:
                for key, steps in latest_steps(database, name, 4 * ENDING).items():
                    words = [line(act_of(step), 30) or "(nothing)" for step in steps[-ENDING:]]
                    endings[key] = " › ".join(words)
    money = {name: cost for name, cost in costs.items() if cost is not None}
    return ComparedPhase(run, phase, phases, tuple(episodes), endings, money, policy, players)


def evaluated(phases: Sequence[str]) -> list[str]:
    """Return the evaluation phases, one per candidate; if there are none, all but RL's."""
    found = [phase for phase in phases if phase.partition("/")[0] in TESTED]
    found = found or [phase for phase in phases if stage_of_step(phase) is None]
    return list(dict.fromkeys(map(candidate, found)))


def candidate(phase: str) -> str:
    """Return the part of an evaluation cell's phase that names split, agent and model."""
    return "/".join(phase.split("/")[:4]) if names_policy(phase) else phase


def names_policy(phase: str) -> bool:
    """Return whether a phase is eval/SPLIT/AGENT/MODEL, or a part of one."""
    return phase.startswith("eval/") and phase.count("/") >= 3


def standings(compared: ComparedPhase) -> dict[str, Standing]:
    """Return a phase's results by environment."""
    of: dict[str, list[Episode]] = {}
    for episode in compared.episodes:
        of.setdefault(episode.task.environment, []).append(episode)
    return {id: _standing(compared, episodes) for id, episodes in of.items()}


def tiles(phases: Sequence[ComparedPhase]) -> list[Tile]:
    """Return every task of any phase, those on which phases differ most first."""
    by_task: list[dict[str, list[Episode]]] = []
    names: dict[str, str] = {}
    for compared in phases:
        tasks: dict[str, list[Episode]] = {}
        for episode in compared.episodes:
            key = identity(episode.task)
            tasks.setdefault(key, []).append(episode)
            names.setdefault(key, line(f"{episode.task.environment} {episode.task.id}"))
        by_task.append(tasks)
    found = []
    for key, name in names.items():
        episodes = [tasks.get(key, []) for tasks in by_task]
        pairs = zip(phases, episodes, strict=True)
        urls = [compared.url(of[0].key) if of else "" for compared, of in pairs]
        shares = (_share(*pair) for pair in zip(phases, episodes, strict=True))
        found.append(Tile(name, tuple(shares), tuple(urls)))
    return sorted(found, key=_order)


def clusters(phases: Sequence[ComparedPhase]) -> dict[str, list[Cluster]]:
    """Group failures by outcome, environment and last actions, the most frequent first."""
    found: dict[str, list[Cluster]] = {}
    for kind in ("outcome", "environment", "last actions"):
        counts = [Counter(_what(kind, of, e) for e in failed(of)) for of in phases]
        total: Counter[str] = sum(counts, Counter())
        total.pop("", None)
        found[kind] = [
            Cluster(
                kind,
                what,
                tuple(counted[what] for counted in counts),
                tuple(_examples(kind, what, phases)),
            )
            for what, _ in total.most_common(CLUSTERS)
        ]
    return found


def failed(compared: ComparedPhase) -> list[Episode]:
    """Return the unsolved episodes of a phase; games between players are none."""
    return [e for e in compared.episodes if not e.outcome.solved and compared.has_success(e)]


# ── details ──────────────────────────────────────────────────────────────────


def _money(compared: ComparedPhase, episodes: Sequence[Episode]) -> float | None:
    """Return the money per episode of one environment; None if a part of it is unknown."""
    environment = episodes[0].task.environment
    counts = Counter(episode.key.phase for episode in episodes)
    mixed = {e.key.phase for e in compared.episodes if e.task.environment != environment}
    if mixed & counts.keys() or counts.keys() - compared.money.keys():
        return None  # money is only known for whole phases
    return sum(compared.money[phase] * count for phase, count in counts.items()) / counts.total()


def _standing(compared: ComparedPhase, episodes: Sequence[Episode]) -> Standing:
    by_task: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_task.setdefault(identity(episode.task), []).append(episode)
    shares = [_share(compared, of) for of in by_task.values()]
    games = [(e.key.group, compared.players.get(e.key, {})) for e in episodes if e.outcome.scored]
    usages = [[episode.usage for episode in of] for of in by_task.values()]
    return Standing(
        success=success_interval(shares),
        tasks=len(by_task),
        episodes=len(episodes),
        faults=sum(not episode.outcome.scored for episode in episodes),
        tokens=fmean(fmean(u.prompt_tokens + u.sampled_tokens for u in of) for of in usages),
        seconds=fmean(fmean(u.seconds for u in of) for of in usages),
        turns=fmean(fmean(u.turns for u in of) for of in usages),
        money=_money(compared, episodes),
        players=player_scores(games),
    )


def _share(compared: ComparedPhase, episodes: Sequence[Episode]) -> float | None:
    """Return the solved share of scored episodes; None without any, and of games."""
    scored = [e for e in episodes if e.outcome.scored and compared.has_success(e)]
    return fmean(float(e.outcome.solved) for e in scored) if scored else None


def _order(tile: Tile) -> tuple[float, float, float]:
    known = [share for share in tile.shares if share is not None]
    return (min(known) - max(known), -known[0], -fmean(known)) if known else (1.0, 0.0, 0.0)


def _what(kind: str, compared: ComparedPhase, episode: Episode) -> str:
    if kind == "outcome":
        return line(str(episode.outcome))
    if kind == "environment":
        return line(episode.task.environment)
    return compared.endings.get(episode.key, "")


def _examples(kind: str, what: str, phases: Sequence[ComparedPhase]) -> list[tuple[str, str]]:
    """Return the first such failure of each phase."""
    found = []
    for compared in phases:
        for episode in failed(compared):
            if _what(kind, compared, episode) == what:
                found.append((f"{compared.run} {episode.key}", compared.url(episode.key)))
                break
    return found
