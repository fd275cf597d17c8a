"""`palaestra eval`: how an agent and a model do on an environment's held-out tasks."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.interrupt import Stopped, run_until_interrupted
from palaestra.core.environment import Capability
from palaestra.core.errors import InputError, PalaestraError, TooManyFaults
from palaestra.core.task import Split, parse_split

if TYPE_CHECKING:
    from palaestra.core.agent import Agent
    from palaestra.core.episode import Episode
    from palaestra.core.model import Model
    from palaestra.core.task import Task
    from palaestra.experiment.progress import Reporter, StageProgress
    from palaestra.rollout.runner import Job
    from palaestra.store.run import RunFolder

EXAMPLE = "palaestra eval --env babyai/GoToLocalS5N2 --agent direct --model random -n 16"
CONTEXT = 2048  # tokens of a conversation with a resident model
CONCURRENCY = 64  # episodes lived at once
DIRECT_TOKENS, THINKING_TOKENS = 8, 128  # tokens per reply, where the user gives none


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", required=True, metavar="ID", help="see `palaestra list`")
    parser.add_argument("--agent", default="direct", metavar="NAME", help="default: direct")
    parser.add_argument(
        "--model", required=True, metavar="NAME",
        help="a name of `palaestra list models`, a run's folder, a checkpoint, openai:MODEL@URL",
    )  # fmt: skip
    parser.add_argument(
        "--role", action="append", default=[], metavar="NAME=MODEL",
        help="another model for one role or player, such as user=openai:MODEL@URL (repeatable)",
    )  # fmt: skip
    parser.add_argument("-n", type=int, default=64, metavar="N", help="tasks (default: 64)")
    parser.add_argument("--split", default="test", help="train, validation or test (the default)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the sampling")
    parser.add_argument("--repeats", type=int, default=1, metavar="R", help="episodes per task")
    parser.add_argument(
        "--turns", type=int, metavar="T", help="actions per episode (default: the world's own)"
    )
    parser.add_argument("--temperature", type=float, default=1.0, metavar="X", help="0: greedy")
    parser.add_argument(
        "--max-tokens", type=int, metavar="M",
        help=f"per reply (default: {DIRECT_TOKENS} for direct, else {THINKING_TOKENS})",
    )  # fmt: skip
    parser.add_argument(
        "--run", metavar="FOLDER", dest="folder", help="where to keep the episodes (runs/eval-…)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    split = _check(options)
    from palaestra.agents.registry import make_agent
    from palaestra.experiment.progress import Reporter
    from palaestra.experiment.setting import typical_turns
    from palaestra.models.registry import load_model
    from palaestra.store.run import RunFolder, default_root, new_run_path

    options.turns = options.turns or typical_turns(options.env)
    family = options.env.partition("/")[2] or options.env
    folder = (
        Path(options.folder) if options.folder else new_run_path(default_root(), f"eval-{family}")
    )
    reporter = Reporter()
    agent = make_agent(options.agent)
    slots = min(CONCURRENCY, options.n * options.repeats) + 2
    names = {"agent": options.model, **_roles(options)}
    models = {
        role: load_model(name, agent, slots=slots, context=CONTEXT, progress=reporter.say)
        for role, name in names.items()
    }
    with RunFolder.create(folder, _settings(options)) as kept:
        reporter.say(f"[bold]{folder}[/bold]: {_title(options)}")
        try:
            work = _evaluate(options, split, agent, models, kept, reporter)
            episodes, seconds = run_until_interrupted(work)
        except Stopped:
            print(f"\nStopped; finished episodes are kept in {folder}.", file=sys.stderr)
            return 130
        except ExceptionGroup as group:
            raise _first(group) from None
        result = summary(episodes, seconds, str(folder)) | _settings(options)
        kept.database.put("evaluation", result)
    if options.json:
        print(json.dumps(result))
    else:
        _render(result)
    return 0 if 2 * result["scored"] > result["episodes"] else 1


def summary(episodes: list[Episode], seconds: float, folder: str) -> dict[str, Any]:
    """What is reported of an evaluation; `success` and its bounds are None without a score."""
    from palaestra.core.outcome import Owner
    from palaestra.evaluation.statistics import score

    found = score(episodes)
    rate = found.success
    return {
        "success": rate.mean if rate else None,
        "interval": [rate.low, rate.high] if rate else None,
        "tasks": len({e.key.group for e in episodes if e.outcome.scored}),
        "episodes": found.episodes,
        "scored": found.episodes - found.faults,
        "reward": found.reward,
        "turns": found.turns,
        "invalid_rate": found.invalid_rate,
        "faults": {str(o): sum(e.outcome.owner is o for e in episodes) for o in Owner},
        "outcomes": found.outcomes,
        "prompt_tokens": sum(e.usage.prompt_tokens for e in episodes),
        "sampled_tokens": sum(e.usage.sampled_tokens for e in episodes),
        "seconds": seconds,
        "run": folder,
    }


def _check(options: argparse.Namespace) -> Split:
    """Find every mistake in the options before anything starts."""
    from palaestra.agents.registry import agent_class, make_agent
    from palaestra.environments.registry import make
    from palaestra.models.registry import check_model

    if options.max_tokens is None:
        options.max_tokens = DIRECT_TOKENS if options.agent == "direct" else THINKING_TOKENS
    for option in ("n", "repeats", "turns", "max_tokens"):
        value = getattr(options, option)
        if value is not None and value < 1:
            flag = "-n" if option == "n" else f"--{option.replace('_', '-')}"
            raise InputError(f"{flag} {value} leaves nothing to do; give 1 or more.")
    if not options.temperature >= 0:
        raise InputError(f"--temperature {options.temperature} cannot be; give 0 or more.")
    if options.max_tokens >= CONTEXT:
        raise InputError(
            f"--max-tokens {options.max_tokens} leaves no room; the context is {CONTEXT}."
        )
    split = parse_split(options.split)
    make_agent(options.agent)
    check_model(options.model)
    for name in _roles(options).values():
        check_model(name)
    world = make(options.env)
    can, chance, players = world.capabilities, world.names_actions, world.players
    world.close()
    if len(players) > 1 and not agent_class(options.agent).several:
        raise InputError(
            f"'{options.env}' has the players {', '.join(players)}, and the agent "
            f"'{options.agent}' plays one; use --agent players."
        )
    strangers = [role for role in _roles(options) if role not in players]
    if strangers:
        raise InputError(
            f"--role {strangers[0]}=… plays nobody: '{options.env}' has {', '.join(players)}."
        )
    if options.model == "expert" and Capability.ORACLE not in can:
        raise InputError(f"'{options.env}' has no expert; choose another model.")
    if options.model == "random" and not chance:
        raise InputError(f"'{options.env}' does not name its actions; choose another model.")
    return split


async def _evaluate(
    options: argparse.Namespace,
    split: Split,
    agent: Agent,
    models: dict[str, Model],
    kept: RunFolder,
    reporter: Reporter,
) -> tuple[list[Episode], float]:
    from palaestra.core.budget import Budget
    from palaestra.core.model import Sampling
    from palaestra.environments.registry import tasks
    from palaestra.rollout.runner import Rollout
    from palaestra.rollout.workers import WorkerPool

    jobs = _jobs(tasks(options.env).take(split, options.n), split, options.repeats)
    started = time.monotonic()
    lived: list[Episode] = []
    try:
        with reporter.stage("eval", len(jobs), "episodes") as shown:
            async with WorkerPool(1) as pool:
                rollout = Rollout(
                    agent=agent,
                    worlds=pool.world,
                    models=models,
                    budget=Budget(turns=options.turns),
                    sampling=Sampling(options.temperature, options.max_tokens),
                    seed=options.seed,
                    concurrency=CONCURRENCY,
                    store=kept.database,
                    finished=_counter(shown, lived),
                )
                try:
                    lived = await rollout.run(jobs)
                except TooManyFaults:  # what was lived is reported all the same
                    broken = [e.outcome for e in lived if not e.outcome.scored]
                    reporter.say(f"most episodes broke; the last: {broken[-1].detail}")
    finally:
        for model in models.values():
            await model.close()
    return lived, time.monotonic() - started


def _roles(options: argparse.Namespace) -> dict[str, str]:
    """Role to model, of those that have one of their own."""
    found = {}
    for given in options.role:
        role, equals, name = given.partition("=")
        if not (role and equals and name):
            raise InputError(f"--role {given} names no model; write --role NAME=MODEL.")
        found[role] = name
    return found


def _jobs(drawn: list[Task], split: Split, repeats: int) -> list[Job]:
    from palaestra.core.episode import Key
    from palaestra.rollout.runner import Job

    members = range(repeats)
    return [Job(Key(f"eval/{split}", i, m), task) for i, task in enumerate(drawn) for m in members]


def _counter(shown: StageProgress, lived: list[Episode]) -> Callable[[Episode], None]:
    solved = scored = 0

    def add(episode: Episode) -> None:
        nonlocal solved, scored
        lived.append(episode)
        solved += episode.outcome.solved
        scored += episode.outcome.scored
        shown.show(len(lived), {"success": f"{100 * solved / scored:.0f} %"} if scored else {})

    return add


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    names = ("agent", "model", "split", "seed", "repeats", "temperature", "max_tokens")
    chosen = {name: getattr(options, name) for name in names}
    return {
        "command": "eval",
        "summary": _title(options),
        "environment": options.env,
        "turn_limit": options.turns,
        "roles": _roles(options),
        **chosen,
    }


def _title(options: argparse.Namespace) -> str:
    return f"{options.agent} with {options.model} on {options.env} ({options.split})"


def _first(group: ExceptionGroup[Any]) -> Exception:
    """The error of ours in a group (the others followed from it), or else the group."""
    for error in group.exceptions:
        inner = _first(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(inner, PalaestraError):
            return inner
    return group


def _render(result: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, title=result["summary"], title_justify="left")
    if result["interval"] is None:
        table.add_row("success", "no episode could be scored")
    else:
        low, high = result["interval"]
        table.add_row(
            "success",
            f"{100 * result['success']:.1f} %  (95 % interval {100 * low:.1f} to "
            f"{100 * high:.1f} %, {result['tasks']} tasks)",
        )
    table.add_row("mean reward", f"{result['reward']:.3f}")
    table.add_row("mean turns", f"{result['turns']:.1f}  of at most {result['turn_limit']}")
    table.add_row("invalid actions", f"{100 * result['invalid_rate']:.1f} %")
    faults = ", ".join(f"{owner} {count}" for owner, count in result["faults"].items())
    table.add_row("faults", faults)
    table.add_row("outcomes", ", ".join(f"{k} {v}" for k, v in result["outcomes"].items()))
    table.add_row("tokens", f"{result['sampled_tokens']} sampled, {result['prompt_tokens']} read")
    table.add_row("seconds", f"{result['seconds']:.1f}")
    table.add_row("episodes in", result["run"])
    Console().print(table)
