"""`palaestra explain`: the turn that lost an episode; what a success depends on; suspicions.

    explain RUN EPISODE          one failed episode, turn by turn
    explain RUN                  all failed episodes of the run, one line each
    explain RUN --shortcuts      what looks like reward hacking
    explain --robustness ENV     success in worlds with one thing changed
    explain --planted ENV        how often each method finds a fault that was planted

The first three read a run; the last two need none.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from palaestra.cli import explain_text
from palaestra.cli.export_command import choose
from palaestra.cli.interrupt import Stopped, run_until_interrupted
from palaestra.cli.judge_command import loaded
from palaestra.cli.show_command import find_episode
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.core.episode import Episode
    from palaestra.evaluation.attribution.attribution import Attribution
    from palaestra.evaluation.attribution.explaining import Explanation
    from palaestra.evaluation.attribution.planted import Method
    from palaestra.store.run import RunFolder

EXAMPLE = "palaestra explain runs/eval-1 eval/test/3.0"
BY = ("oracle", "chance", "words", "policy", "judge")
CONTEXT, AT_ONCE = 2048, 32


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's folder or name")
    parser.add_argument("episode", nargs="?", metavar="EPISODE", help="e.g. eval/test/3.0")
    parser.add_argument("--shortcuts", action="store_true", help="look for reward hacking")
    parser.add_argument("--robustness", metavar="ENV", help="one-factor perturbations of a world")
    parser.add_argument("--planted", metavar="ENV", help="measure the methods on planted faults")
    parser.add_argument(
        "--by", action="append", default=[], metavar="METHOD",
        help=f"{', '.join(BY)} (repeatable; default: all that need no model)",
    )  # fmt: skip
    parser.add_argument("--judge", metavar="MODEL", help="with --by judge: it labels the steps")
    parser.add_argument("--agent", metavar="NAME", help="of --by policy and --robustness")
    parser.add_argument("--model", metavar="NAME", help="of --by policy and --robustness")
    parser.add_argument(
        "--factor", action="append", default=[], metavar="KNOB=VALUE",
        help="with --robustness: such as errors=0.3 (repeatable; default: five factors)",
    )  # fmt: skip
    parser.add_argument("--phase", action="append", default=[], metavar="PHASE", dest="phases")
    parser.add_argument("-n", type=int, default=16, metavar="N", help="tasks, or episodes")
    parser.add_argument("--samples", type=int, default=8, metavar="K", help="tries per state")
    parser.add_argument("--turns", type=int, metavar="T", help="most actions of an episode")
    parser.add_argument(
        "--slack", type=int, metavar="S",
        help="with --planted: actions beyond the oracle's way (default: the world's own limit)",
    )  # fmt: skip
    parser.add_argument("--save", action="store_true", help="keep it with the run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    _check(options)
    show: Callable[[dict[str, Any]], None]
    if options.robustness:
        result, show = _robustness(options), explain_text.robustness
    elif options.planted:
        result, show = _planted(options), explain_text.planted
    elif options.shortcuts:
        result, show = _shortcuts(options), explain_text.shortcuts
    elif options.episode is None:
        result, show = _failures(options), explain_text.failures
    else:
        result, show = _episode(options), explain_text.episode
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return 0


def _check(options: argparse.Namespace) -> None:
    from palaestra.core.errors import UnknownName

    for method in options.by:
        if method not in BY:
            raise UnknownName("method", method, BY)
    for name in ("n", "samples", "turns"):
        value = getattr(options, name)
        if value is not None and value < 1:
            flag = "-n" if name == "n" else f"--{name}"
            raise InputError(f"{flag} {value} leaves nothing to do; give 1 or more.")
    alone = options.robustness or options.planted
    if alone and options.run:
        raise InputError("--robustness and --planted need no run; leave it out.")
    if not alone and options.run is None:
        raise InputError("What is to be explained? Name a run, or a world with --robustness.")
    if "judge" in options.by and not options.judge:
        raise InputError("--by judge needs the model that labels the steps; name it with --judge.")
    if ("policy" in options.by or options.robustness) and not options.model:
        raise InputError("Which model goes on? Name it with --model.")


# ── episodes of a run ────────────────────────────────────────────────────────


def _episode(options: argparse.Namespace) -> dict[str, Any]:
    from palaestra.environments.registry import make
    from palaestra.evaluation.attribution import attribution
    from palaestra.evaluation.attribution.explaining import METHODS, explain
    from palaestra.store.run import RunFolder

    with _opened(options) as opened:
        episode = find_episode(opened.database, options.episode)
        turns = _turns(options, opened, episode)
        methods = [m for m in options.by or METHODS if m in METHODS]
        explained = explain(episode, make, turns=turns, methods=methods, samples=options.samples)
        more = _interruptible(_asked(options, opened, episode, turns))
        found = (*explained.attributions, *more)
        if options.save:
            assert isinstance(opened, RunFolder)
            attribution.keep(opened.database, episode.key, found)
    return _document(explained, found)


async def _asked(
    options: argparse.Namespace, opened: RunFolder, episode: Episode, turns: int
) -> list[Attribution]:
    """What models say: one that goes on from each state, one that labels each step."""
    from palaestra.evaluation.attribution.counterfactual import largest_drop
    from palaestra.evaluation.attribution.values import policy_values
    from palaestra.evaluation.judges.case import case_of
    from palaestra.evaluation.judges.steps import first_wrong, step_labels

    found = []
    if "policy" in options.by:
        recorded = (opened.database.get("recipe") or {}).get("agent")
        if options.agent is None and isinstance(recorded, str):
            options.agent = recorded
        environment = episode.task.environment
        async with _Rolling(options, environment, turns) as rollout:
            values = await policy_values(rollout, episode, options.samples)
        found.append(largest_drop(episode, values, "policy"))
    if "judge" in options.by:
        model = loaded(options.judge)
        try:
            labels, _ = await step_labels(model, case_of(episode))
        finally:
            await model.close()
        found.append(first_wrong(case_of(episode), labels))
    return found


def _failures(options: argparse.Namespace) -> dict[str, Any]:
    from palaestra.environments.registry import make
    from palaestra.evaluation.attribution import attribution
    from palaestra.evaluation.attribution.explaining import METHODS, explain

    methods = [m for m in options.by or ("oracle", "words") if m in METHODS]
    rows = []
    with _opened(options) as opened:
        failed = [
            episode
            for episode in _episodes(options, opened)
            if episode.outcome.scored and not episode.outcome.solved
        ]
        for episode in failed[: options.n]:
            turns = _turns(options, opened, episode)
            explained = explain(episode, make, turns=turns, methods=methods)
            if options.save:
                attribution.keep(opened.database, episode.key, explained.attributions)
            rows.append(_document(explained, explained.attributions))
    return {"run": str(opened.path), "failed": len(failed), "episodes": rows}


def _shortcuts(options: argparse.Namespace) -> dict[str, Any]:
    from palaestra.core.environment import Capability
    from palaestra.environments.registry import make
    from palaestra.evaluation.attribution.planted import references
    from palaestra.evaluation.attribution.shortcuts import divergence, inspect

    with _opened(options) as opened:
        episodes = _episodes(options, opened)
        steps = [name for name in opened.database.phases() if name.startswith("rl/")]
        by_step = [[e for e in opened.database.episodes(s) if e.outcome.scored] for s in steps]
    findings = divergence(
        [[e.reward for e in step] for step in by_step],
        [[float(e.outcome.solved) for e in step] for step in by_step],
    )
    for environment in dict.fromkeys(e.task.environment for e in episodes):
        of = [e for e in episodes if e.task.environment == environment]
        world = make(environment)
        knows = Capability.ORACLE in world.capabilities
        world.close()
        tasks = list({e.task.id: e.task for e in of}.values())[: options.n]
        findings += inspect(of, references(make, tasks) if knows and tasks else None)
    return {
        "run": str(opened.path),
        "episodes": len(episodes),
        "findings": [
            {
                "detector": found.detector,
                "episode": str(found.key) if found.key else None,
                "turn": found.turn,
                "what": found.what,
            }
            for found in findings
        ],
    }


def _opened(options: argparse.Namespace) -> RunFolder:
    from palaestra.store.run import RunFolder, run_path

    path = run_path(options.run)
    return RunFolder.open(path) if options.save else RunFolder.read(path)


def _episodes(options: argparse.Namespace, opened: RunFolder) -> list[Episode]:
    names = choose(opened.database.phases(), options.phases)
    return [episode for name in names for episode in opened.database.episodes(name)]


def _turns(options: argparse.Namespace, opened: RunFolder, episode: Episode) -> int:
    """The most actions that the episode was allowed."""
    from palaestra.experiment.setting import typical_turns

    recipe = opened.database.get("recipe") or {}
    world = recipe.get("environment")
    recorded = recipe.get("turn_limit") or (world.get("turns") if isinstance(world, dict) else None)
    found = options.turns or recorded or typical_turns(episode.task.environment)
    return max(int(found), len(episode.steps))


def _document(explained: Explanation, found: tuple[Attribution, ...]) -> dict[str, Any]:
    from dataclasses import asdict

    from palaestra.evaluation.attribution.attribution import verdict
    from palaestra.evaluation.stages import stages
    from palaestra.evaluation.transcript import turns

    episode, believed = explained.episode, verdict(found)
    return {
        "episode": str(episode.key),
        "task": episode.task.id,
        "environment": episode.task.environment,
        "outcome": str(episode.outcome),
        "turns": [
            {"saw": turn.observation, "did": turn.action, "valid": turn.valid}
            for turn in turns(episode)[:-1]
        ],
        "verdict": believed.as_json() if believed else None,
        "attributions": [one.as_json() for one in found],
        "labels": list(explained.labels),
        "ignored": list(explained.ignored),
        "stages": asdict(stages(episode)),
        "unable": list(explained.unable),
    }


# ── worlds without a run ─────────────────────────────────────────────────────


def _robustness(options: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import asdict

    from palaestra.core.task import Split
    from palaestra.environments.registry import tasks
    from palaestra.evaluation.attribution.robustness import FACTORS, changed, robustness
    from palaestra.experiment.setting import typical_turns

    environment = options.robustness
    factors = {query: query for query in options.factor} or FACTORS
    for query in factors.values():
        changed(environment, query)
    turns = options.turns or typical_turns(environment)
    options.agent = options.agent or "direct"

    async def work() -> list[Any]:
        async with _Rolling(options, environment, turns) as rollout:
            drawn = tasks(environment).take(Split.TEST, options.n)
            return await robustness(rollout, environment, drawn, factors)

    found = _interruptible(work())
    return {
        "environment": environment,
        "agent": options.agent,
        "model": options.model,
        "tasks": options.n,
        "factors": [asdict(factor) for factor in found],
    }


def _planted(options: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import asdict

    from palaestra.environments.registry import make
    from palaestra.evaluation.attribution.planted import fresh_tasks, planted, precision

    tasks = fresh_tasks(options.planted, options.n, make)
    cases = planted(make, tasks, slack=options.slack)
    found = precision(make, cases, _methods(options.samples))
    return {
        "environment": options.planted,
        "tasks": len(tasks),
        "planted": len(cases),
        "methods": {name: asdict(of) for name, of in found.items()},
    }


def _methods(samples: int) -> dict[str, Method]:
    from palaestra.evaluation.attribution.counterfactual import largest_drop, losing_turn
    from palaestra.evaluation.attribution.dependencies import (
        first_refusal,
        last_turn,
        root_cause,
    )
    from palaestra.evaluation.attribution.values import chance_values, oracle_values

    return {
        "oracle": lambda case, replay: losing_turn(
            case.episode, oracle_values(replay, case.turns), replay.actions
        ),
        "chance": lambda case, replay: largest_drop(
            case.episode, chance_values(replay, case.turns, samples), "chance"
        ),
        "words": lambda case, replay: root_cause(case.episode, replay.world.instructions),
        "first refusal": lambda case, replay: first_refusal(case.episode),
        "last turn": lambda case, replay: last_turn(case.episode),
    }


class _Rolling:
    """A rollout by the chosen agent and model, as a context; closes what it holds."""

    def __init__(self, options: argparse.Namespace, environment: str, turns: int) -> None:
        self._options, self._environment, self._turns = options, environment, turns

    async def __aenter__(self) -> Any:
        from palaestra.agents.registry import make_agent
        from palaestra.core.budget import Budget
        from palaestra.core.model import Sampling
        from palaestra.experiment.crowd import usual
        from palaestra.experiment.progress import Reporter
        from palaestra.models.registry import load_model
        from palaestra.rollout.runner import Rollout
        from palaestra.rollout.workers import WorkerPool

        options = self._options
        agent = make_agent(options.agent or "direct")
        at_once = min(AT_ONCE, usual(self._environment, options.agent or ""))
        self._model = load_model(
            options.model, agent, slots=at_once + 2, context=CONTEXT, progress=Reporter().say
        )
        self._pool = WorkerPool(1)
        await self._pool.__aenter__()
        return Rollout(
            agent=agent,
            worlds=self._pool.world,
            models={"agent": self._model},
            budget=Budget(turns=self._turns),
            sampling=Sampling(1.0, 8 if agent.name == "direct" else 128),
            seed=1,
            concurrency=at_once,
        )

    async def __aexit__(self, *raised: Any) -> None:
        await self._pool.__aexit__(*raised)
        await self._model.close()


def _interruptible(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return run_until_interrupted(work)
    except Stopped:
        raise KeyboardInterrupt from None
    except ExceptionGroup as group:
        from palaestra.api.evaluating import first_error

        raise first_error(group) from None
