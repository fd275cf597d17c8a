"""`palaestra explain`: the turn that lost an episode, robustness of successes, reward hacking.

    explain RUN EPISODE          one failed episode, turn by turn
    explain RUN                  all failed episodes of the run, one line each
    explain RUN --shortcuts      signs of reward hacking
    explain --robustness ENV     success in environments with one factor changed
    explain --planted ENV        how often each method finds a planted fault

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
    from palaestra.evaluation.attribution.base import Attribution
    from palaestra.evaluation.attribution.explaining import Explanation
    from palaestra.evaluation.attribution.planted_faults import Method
    from palaestra.store.run_folder import RunFolder

EXAMPLE = "palaestra explain runs/eval-1 eval/test/3.0"
BY = ("oracle", "chance", "words", "policy", "judge")
CONTEXT, CONCURRENCY = 2048, 32


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's folder or name")
    parser.add_argument("episode", nargs="?", metavar="EPISODE", help="e.g. eval/test/3.0")
    parser.add_argument("--shortcuts", action="store_true", help="look for reward hacking")
    parser.add_argument(
        "--robustness", metavar="ENV", help="one-factor perturbations of an environment"
    )
    parser.add_argument("--planted", metavar="ENV", help="measure the methods on planted faults")
    parser.add_argument(
        "--by", action="append", default=[], metavar="METHOD",
        help=f"{', '.join(BY)} (repeatable; default: all that need no model)",
    )  # fmt: skip
    parser.add_argument(
        "--judge", metavar="MODEL", help="with --by judge: the model that labels the steps"
    )
    parser.add_argument("--agent", metavar="NAME", help="for --by policy and --robustness")
    parser.add_argument("--model", metavar="NAME", help="for --by policy and --robustness")
    parser.add_argument(
        "--factor", action="append", default=[], metavar="KNOB=VALUE",
        help="with --robustness: such as errors=0.3 (repeatable; default: five factors)",
    )  # fmt: skip
    parser.add_argument("--phase", action="append", default=[], metavar="PHASE", dest="phases")
    parser.add_argument("-n", type=int, default=16, metavar="N", help="tasks, or episodes")
    parser.add_argument("--samples", type=int, default=8, metavar="K", help="rollouts per state")
    parser.add_argument("--turns", type=int, metavar="T", help="maximum actions of an episode")
    parser.add_argument(
        "--slack", type=int, metavar="S",
        help="with --planted: actions beyond the oracle's plan (default: the environment's limit)",
    )  # fmt: skip
    parser.add_argument("--save", action="store_true", help="store the result in the run")
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
        raise InputError("Nothing to explain; name a run, or an environment with --robustness.")
    if "judge" in options.by and not options.judge:
        raise InputError("--by judge needs the model that labels the steps; name it with --judge.")
    if ("policy" in options.by or options.robustness) and not options.model:
        raise InputError("The model that continues episodes is missing; name it with --model.")


# ── episodes of a run ────────────────────────────────────────────────────────


def _episode(options: argparse.Namespace) -> dict[str, Any]:
    from palaestra.environments.registry import make
    from palaestra.evaluation.attribution import base
    from palaestra.evaluation.attribution.explaining import METHODS, explain
    from palaestra.store.run_folder import RunFolder

    with _opened(options) as opened:
        episode = find_episode(opened.database, options.episode)
        turns = _turns(options, opened, episode)
        methods = [m for m in options.by or METHODS if m in METHODS]
        explained = explain(episode, make, turns=turns, methods=methods, samples=options.samples)
        more = _interruptible(_asked(options, opened, episode, turns))
        found = (*explained.attributions, *more)
        if options.save:
            assert isinstance(opened, RunFolder)
            base.store_attributions(opened.database, episode.key, found)
    return _document(explained, found)


async def _asked(
    options: argparse.Namespace, opened: RunFolder, episode: Episode, turns: int
) -> list[Attribution]:
    """Return the attributions by models: one continues from each state, one labels each step."""
    from palaestra.evaluation.attribution.counterfactual import largest_drop
    from palaestra.evaluation.attribution.state_values import policy_values
    from palaestra.evaluation.judges.case import case_of
    from palaestra.evaluation.judges.step_labels import first_wrong, step_labels

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
    from palaestra.evaluation.attribution import base
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
                base.store_attributions(opened.database, episode.key, explained.attributions)
            rows.append(_document(explained, explained.attributions))
    return {"run": str(opened.path), "failed": len(failed), "episodes": rows}


def _shortcuts(options: argparse.Namespace) -> dict[str, Any]:
    from palaestra.core.environment import Capability
    from palaestra.environments.registry import make
    from palaestra.evaluation.attribution.planted_faults import references
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
        made = make(environment)
        has_oracle = Capability.ORACLE in made.spec.capabilities
        made.close()
        tasks = list({e.task.id: e.task for e in of}.values())[: options.n]
        findings += inspect(of, references(make, tasks) if has_oracle and tasks else None)
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
    from palaestra.store.run_folder import RunFolder, run_path

    path = run_path(options.run)
    return RunFolder.open(path) if options.save else RunFolder.read(path)


def _episodes(options: argparse.Namespace, opened: RunFolder) -> list[Episode]:
    names = choose(opened.database.phases(), options.phases)
    return [episode for name in names for episode in opened.database.episodes(name)]


def _turns(options: argparse.Namespace, opened: RunFolder, episode: Episode) -> int:
    """Return the turn limit of the episode."""
    from palaestra.training.run_context import typical_turns

    recipe = opened.database.get("recipe") or {}
    chosen = recipe.get("environment")
    recorded = recipe.get("turn_limit") or (
        chosen.get("turns") if isinstance(chosen, dict) else None
    )
    found = options.turns or recorded or typical_turns(episode.task.environment)
    return max(int(found), len(episode.steps))


def _document(explained: Explanation, found: tuple[Attribution, ...]) -> dict[str, Any]:
    from dataclasses import asdict

    from palaestra.evaluation.attribution.base import verdict
    from palaestra.evaluation.attribution.stage_diagnosis import stages
    from palaestra.evaluation.reports.transcript import turns

    episode, best = explained.episode, verdict(found)
    return {
        "episode": str(episode.key),
        "task": episode.task.id,
        "environment": episode.task.environment,
        "outcome": str(episode.outcome),
        "turns": [
            {"saw": turn.observation, "did": turn.action, "valid": turn.valid}
            for turn in turns(episode)[:-1]
        ],
        "verdict": best.as_json() if best else None,
        "attributions": [one.as_json() for one in found],
        "labels": list(explained.labels),
        "ignored": list(explained.ignored),
        "stages": asdict(stages(episode)),
        "unable": list(explained.unable),
    }


# ── environments without a run ─────────────────────────────────────────────────────


def _robustness(options: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import asdict

    from palaestra.core.task import Split
    from palaestra.environments.registry import tasks
    from palaestra.evaluation.attribution.robustness import FACTORS, changed, robustness
    from palaestra.training.run_context import typical_turns

    environment = options.robustness
    factors = {query: query for query in options.factor} or FACTORS
    for query in factors.values():
        changed(environment, query)
    turns = options.turns or typical_turns(environment)
    options.agent = options.agent or "direct"
    chosen = tasks(environment).take_once(Split.TEST, options.n)

    async def work() -> list[Any]:
        async with _Rolling(options, environment, turns) as rollout:
            return await robustness(rollout, environment, chosen, factors)

    found = _interruptible(work())
    return {
        "environment": environment,
        "agent": options.agent,
        "model": options.model,
        "tasks": len(chosen),
        "factors": [asdict(factor) for factor in found],
    }


def _planted(options: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import asdict

    from palaestra.environments.registry import make
    from palaestra.evaluation.attribution.planted_faults import fresh_tasks, planted, precision

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
    from palaestra.evaluation.attribution.state_values import oracle_values, random_values

    return {
        "oracle": lambda case, replay: losing_turn(
            case.episode, oracle_values(replay, case.turns), replay.actions
        ),
        "chance": lambda case, replay: largest_drop(
            case.episode, random_values(replay, case.turns, samples), "chance"
        ),
        "words": lambda case, replay: root_cause(case.episode, replay.env.instructions),
        "first refusal": lambda case, replay: first_refusal(case.episode),
        "last turn": lambda case, replay: last_turn(case.episode),
    }


class _Rolling:
    """A context manager for rollouts by the chosen agent and model."""

    def __init__(self, options: argparse.Namespace, environment: str, turns: int) -> None:
        self._options, self._environment, self._turns = options, environment, turns

    async def __aenter__(self) -> Any:
        from palaestra.agents.registry import make_agent
        from palaestra.core.budget import Budget
        from palaestra.core.model import Sampling
        from palaestra.evaluation.running.matrix import reply_tokens
        from palaestra.models.registry import is_remote, load_model
        from palaestra.rollout.runner import Rollout
        from palaestra.rollout.worker_pool import WorkerPool
        from palaestra.runtime.concurrency import usual
        from palaestra.runtime.progress import Reporter

        options = self._options
        agent = make_agent(options.agent or "direct")
        concurrency = min(CONCURRENCY, usual(self._environment, options.agent or ""))
        self._model = load_model(
            options.model, agent, slots=concurrency + 2, context=CONTEXT, progress=Reporter().say
        )
        self._pool = WorkerPool(1)
        await self._pool.__aenter__()
        return Rollout(
            agent=agent,
            make_environment=self._pool.make,
            models={"agent": self._model},
            budget=Budget(turns=self._turns),
            sampling=Sampling(
                1.0, None if is_remote(options.model) else reply_tokens(options.agent or "direct")
            ),
            seed=1,
            concurrency=concurrency,
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
