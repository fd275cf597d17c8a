"""Sides of a comparison: a phase of a run each, written RUN:PHASE, with what pages show of them.

A phase stands for all below it too: `eval/test/react/tiny` for its cells in every environment.

Only the headers of episodes are read, so that a side may be large; its last actions are looked
at where it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from starlette.exceptions import HTTPException

from palaestra.core.episode import Episode, Key
from palaestra.evaluation.diff import identity
from palaestra.evaluation.statistics import Interval, success_interval
from palaestra.store.ranges import latest_steps, phase_headers
from palaestra.viewer.facts import money_per_episode
from palaestra.viewer.site import Site, episode_url
from palaestra.viewer.texts import line
from palaestra.viewer.turns import act_of

TESTED = ("test", "eval", "transfer", "cell")  # how phases of evaluations begin
LATEST = 3000  # episodes of a side up to which their last actions are looked at
ENDING = 3  # actions that make an ending
CLUSTERS = 12  # of each kind that are shown


@dataclass(frozen=True, slots=True)
class Side:
    """One phase of one run, with those below it."""

    run: str
    phase: str
    phases: tuple[str, ...]  # that have its episodes
    episodes: tuple[Episode, ...]  # without their calls and steps
    endings: Mapping[Key, str]  # the last actions of each; empty where there are too many
    money: Mapping[str, float]  # per episode, by phase; without those of which it is not known

    @property
    def name(self) -> str:
        """As an address has it."""
        return f"{self.run}:{self.phase}"

    def url(self, key: Key) -> str:
        """Where an episode of this side is shown."""
        return episode_url(self.run, key)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a side did in one environment."""

    success: Interval | None
    tasks: int
    episodes: int
    faults: int  # not scored
    tokens: float  # read and sampled per task, repeats averaged
    seconds: float  # likewise
    turns: float  # likewise
    money: float | None  # per episode; None where not all of it is known


@dataclass(frozen=True, slots=True)
class Tile:
    """One task under all sides."""

    task: str
    shares: tuple[float | None, ...]  # solved of its scored episodes, by side
    urls: tuple[str, ...]  # of its first episode; empty where a side lacks it


@dataclass(frozen=True, slots=True)
class Cluster:
    """Failures that have something in common."""

    kind: str  # "outcome", "environment" or "last actions"
    what: str
    counts: tuple[int, ...]  # by side
    examples: tuple[tuple[str, str], ...]  # key and address


def side_of(site: Site, name: str) -> Side:
    """The side RUN:PHASE; raises HTTPException where there is none."""
    run, colon, phase = name.partition(":")
    with site.run(run) as opened:
        database = opened.database
        known = database.phases()
        if not colon:
            phase = (evaluated(known) or [""])[-1]
        phases = tuple(name for name in known if name == phase or name.startswith(f"{phase}/"))
        episodes = [header for name in phases for header in phase_headers(database, name)]
        if not episodes:
            there = ", ".join(known[:20]) or "none yet"
            raise HTTPException(404, f"The run '{run}' has no phase '{phase}'. It has: {there}.")
        costs = {name: money_per_episode(database, name) for name in phases}
        endings = {}
        if len(episodes) <= LATEST:
            for name in phases:
                for key, steps in latest_steps(database, name, 4 * ENDING).items():
                    words = [line(act_of(step), 30) or "(nothing)" for step in steps[-ENDING:]]
                    endings[key] = " › ".join(words)
    money = {name: cost for name, cost in costs.items() if cost is not None}
    return Side(run, phase, phases, tuple(episodes), endings, money)


def evaluated(phases: Sequence[str]) -> list[str]:
    """The phases that evaluate, one for each contender; all but those of RL if none is named so."""
    found = [phase for phase in phases if phase.partition("/")[0] in TESTED]
    found = found or [phase for phase in phases if not phase.startswith("rl/")]
    return list(dict.fromkeys(map(contender, found)))


def contender(phase: str) -> str:
    """The part of a phase that names split, agent and model, if it is a cell of an evaluation."""
    parts = phase.split("/")
    return "/".join(parts[:4]) if parts[0] == "eval" and len(parts) > 4 else phase


def standings(side: Side) -> dict[str, Standing]:
    """How a side did, by environment."""
    of: dict[str, list[Episode]] = {}
    for episode in side.episodes:
        of.setdefault(episode.task.environment, []).append(episode)
    return {world: _standing(episodes, _money(side, episodes)) for world, episodes in of.items()}


def tiles(sides: Sequence[Side]) -> list[Tile]:
    """Every task of any side, those on which sides differ most first."""
    by_task: list[dict[str, list[Episode]]] = []
    names: dict[str, str] = {}
    for side in sides:
        tasks: dict[str, list[Episode]] = {}
        for episode in side.episodes:
            place = identity(episode.task)
            tasks.setdefault(place, []).append(episode)
            names.setdefault(place, line(f"{episode.task.environment} {episode.task.id}"))
        by_task.append(tasks)
    found = []
    for place, name in names.items():
        episodes = [tasks.get(place, []) for tasks in by_task]
        urls = [side.url(of[0].key) if of else "" for side, of in zip(sides, episodes, strict=True)]
        found.append(Tile(name, tuple(_share(of) for of in episodes), tuple(urls)))
    return sorted(found, key=_order)


def clusters(sides: Sequence[Side]) -> dict[str, list[Cluster]]:
    """Failures by outcome, environment and last actions, the most frequent first."""
    found: dict[str, list[Cluster]] = {}
    for kind in ("outcome", "environment", "last actions"):
        counts = [Counter(_what(kind, side, e) for e in _failed(side)) for side in sides]
        total: Counter[str] = sum(counts, Counter())
        total.pop("", None)
        found[kind] = [
            Cluster(
                kind,
                what,
                tuple(counted[what] for counted in counts),
                tuple(_examples(kind, what, sides)),
            )
            for what, _ in total.most_common(CLUSTERS)
        ]
    return found


# ── details ──────────────────────────────────────────────────────────────────


def _money(side: Side, episodes: Sequence[Episode]) -> float | None:
    """Per episode of one environment; None where not all of it is known."""
    world = episodes[0].task.environment
    counts = Counter(episode.key.phase for episode in episodes)
    mixed = {e.key.phase for e in side.episodes if e.task.environment != world}
    if mixed & counts.keys() or counts.keys() - side.money.keys():
        return None  # it is known of phases as a whole
    return sum(side.money[phase] * count for phase, count in counts.items()) / counts.total()


def _standing(episodes: Sequence[Episode], money: float | None) -> Standing:
    by_task: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_task.setdefault(identity(episode.task), []).append(episode)
    shares = [_share(of) for of in by_task.values()]
    usages = [[episode.usage for episode in of] for of in by_task.values()]
    return Standing(
        success=success_interval(shares),
        tasks=len(by_task),
        episodes=len(episodes),
        faults=sum(not episode.outcome.scored for episode in episodes),
        tokens=fmean(fmean(u.prompt_tokens + u.sampled_tokens for u in of) for of in usages),
        seconds=fmean(fmean(u.seconds for u in of) for of in usages),
        turns=fmean(fmean(u.turns for u in of) for of in usages),
        money=money,
    )


def _share(episodes: Sequence[Episode]) -> float | None:
    scored = [float(e.outcome.solved) for e in episodes if e.outcome.scored]
    return fmean(scored) if scored else None


def _order(tile: Tile) -> tuple[float, float, float]:
    known = [share for share in tile.shares if share is not None]
    return (min(known) - max(known), -known[0], -fmean(known)) if known else (1.0, 0.0, 0.0)


def _failed(side: Side) -> list[Episode]:
    return [episode for episode in side.episodes if not episode.outcome.solved]


def _what(kind: str, side: Side, episode: Episode) -> str:
    if kind == "outcome":
        return line(str(episode.outcome))
    if kind == "environment":
        return line(episode.task.environment)
    return side.endings.get(episode.key, "")


def _examples(kind: str, what: str, sides: Sequence[Side]) -> list[tuple[str, str]]:
    """The first such failure of each side."""
    found = []
    for side in sides:
        for episode in _failed(side):
            if _what(kind, side, episode) == what:
                found.append((f"{side.run} {episode.key}", side.url(episode.key)))
                break
    return found
