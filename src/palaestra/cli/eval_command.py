"""`palaestra eval`: how agents and models do on environments' held-out tasks."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from palaestra.cli.interrupt import Stopped, resumable, run_until_interrupted
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.api.asking import Effort, Subject
    from palaestra.api.evaluating import Evaluation
    from palaestra.experiment.matrix import Asked

EXAMPLE = "palaestra eval --env babyai/GoToLocalS5N2 --agent direct --model random -n 16"

OF_SUITES = ("env", "n", "split", "repeats", "turns", "max_tokens", "deadline", "tried")
OF_NEW_RUNS = (
    *OF_SUITES, "suite", "agent", "agent_command", "agent_sandbox", "agent_mount", "agent_limit",
    "agent_hide_rewards",
    "model", "role", "seed", "temperature", "shard", "price", "folder", "durability",
)  # fmt: skip
"""Options that say what is evaluated, which a run that is gone on with has settled."""


def configure(parser: argparse.ArgumentParser) -> None:
    new = parser.add_argument_group("what is evaluated: every agent with every model everywhere")
    new.add_argument("--env", action="append", metavar="ID", help="see `palaestra list` (r)")
    new.add_argument("--suite", metavar="FILE", help="a TOML file of environments and tasks")
    new.add_argument("--agent", action="append", metavar="NAME", help="default: direct (r)")
    new.add_argument(
        "--agent-command", action="append", metavar="COMMAND",
        help="a program that is the agent, such as 'python my_agent.py'; see docs/gateway.md (r)",
    )  # fmt: skip
    new.add_argument(
        "--agent-sandbox", metavar="KIND",
        help="run the programs in a sandbox that reaches the gateway only: bubblewrap, or auto",
    )  # fmt: skip
    new.add_argument(
        "--agent-mount", action="append", metavar="PATH", help="which they may read there (r)"
    )
    new.add_argument(
        "--agent-limit", action="append", metavar="NAME=VALUE",
        help="what they may use there, such as memory=1000000000 (r)",
    )  # fmt: skip
    new.add_argument(
        "--agent-hide-rewards", action="store_const", const=True,
        help="programs are not told what their actions earned",
    )  # fmt: skip
    new.add_argument(
        "--model", action="append", metavar="NAME",
        help="a name of `palaestra list models`, a run's folder, a checkpoint, "
        "openai:MODEL@URL, anthropic:MODEL@URL (r)",
    )  # fmt: skip
    new.add_argument(
        "--role", action="append", metavar="NAME=MODEL",
        help="another model for one role or player, such as user=openai:MODEL@URL (r)",
    )  # fmt: skip
    new.add_argument("-n", type=int, metavar="N", help="tasks (default: 64)")
    new.add_argument("--split", help="train, validation or test (the default)")
    new.add_argument(
        "--seed", type=int, action="append", metavar="N", help="of the sampling (default: 1) (r)"
    )
    new.add_argument("--repeats", type=int, metavar="R", help="episodes per task (default: 1)")
    new.add_argument(
        "--turns", type=int, metavar="T", help="actions per episode (default: the world's own)"
    )
    new.add_argument("--temperature", type=float, metavar="X", help="default: 1; 0: greedy")
    new.add_argument(
        "--max-tokens", type=int, metavar="M",
        help="per reply (default: 8 for direct, else 128)",
    )  # fmt: skip
    new.add_argument(
        "--deadline", type=float, metavar="S",
        help="seconds after which an episode ends as truncated(seconds), which is no success",
    )  # fmt: skip
    new.add_argument(
        "--tried", type=int, metavar="T",
        help="actions that a search may try in an episode, besides those that it takes",
    )  # fmt: skip
    new.add_argument(
        "--shard", metavar="K/N",
        help="only the K-th of N parts of the tasks; `palaestra leaderboard` joins the runs",
    )  # fmt: skip
    new.add_argument(
        "--price", action="append", metavar="MODEL=IN/OUT", help="of a million tokens (r)"
    )
    how = parser.add_argument_group("how ((r): may be repeated)")
    how.add_argument(
        "--resume", metavar="RUN",
        help="go on with a run that stopped; also lives again what infrastructure broke, and "
        "nothing else",
    )  # fmt: skip
    how.add_argument(
        "--concurrency", action="append", metavar="[MODEL=]N",
        help="episodes lived at once, of one model or of each (default: 64; 8 a core where each "
        "world is a Java virtual machine, 4 a core where the agent is a command) (r)",
    )  # fmt: skip
    how.add_argument(
        "--workers", type=int, default=1, metavar="N",
        help="processes that host the worlds; 0: this one (default: 1)",
    )  # fmt: skip
    how.add_argument("--budget-tokens", type=int, metavar="N", help="read and sampled, in all")
    how.add_argument("--budget-money", type=float, metavar="X", help="in all; needs --price")
    how.add_argument("--budget-seconds", type=float, metavar="S", help="of work, in all")
    how.add_argument(
        "--run", metavar="FOLDER", dest="folder", help="where to keep the episodes (runs/eval-…)"
    )
    how.add_argument(
        "--durability", choices=("normal", "full"),
        help="what is recorded outlives the process (normal, the default), or a power cut too",
    )  # fmt: skip
    how.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    return _resume(options) if options.resume is not None else begin(asked_by(options), options)


def begin(asked: Asked, options: argparse.Namespace) -> int:
    """Evaluate what is asked in a new run; returns the exit code."""
    from palaestra.api.evaluating import Evaluation
    from palaestra.experiment.progress import Reporter
    from palaestra.store.schema import Durability

    with Evaluation.begin(
        asked,
        _effort(options),
        options.folder,
        reporter=Reporter(),
        durability=Durability(options.durability or "normal"),
        name=_flag,
    ) as evaluation:
        return _work(evaluation, options.json)


def _resume(options: argparse.Namespace) -> int:
    from palaestra.api.evaluating import Evaluation
    from palaestra.experiment.progress import Reporter

    for name in OF_NEW_RUNS:
        if getattr(options, name) is not None:
            raise InputError(
                f"--resume goes on with what the run evaluates; drop {_flag(name)}, or start a "
                "new run without --resume."
            )
    with Evaluation.resume(
        Path(options.resume), _effort(options), reporter=Reporter(), name=_flag
    ) as evaluation:
        return _work(evaluation, options.json)


def _work(evaluation: Evaluation, as_json: bool) -> int:
    """Evaluate and print the result; returns the exit code."""
    from palaestra.api.result_text import render

    again = f"palaestra eval --resume {evaluation.folder}"
    with resumable(again):
        try:
            result = run_until_interrupted(evaluation.live())
        except Stopped:
            print(
                f"\nStopped; finished episodes are kept in {evaluation.folder}. "
                f"Go on with: {again}",
                file=sys.stderr,
            )
            return 130
    done, reporter = evaluation.done, evaluation.reporter
    if done.stopped is not None:
        reporter.say(f"stopped because {done.stopped}; go on with: {again}")
    if as_json:
        print(json.dumps(result))
    else:
        render(result)
    cells = result.get("cells", [result])
    if broken := sum(cell["faults"]["infrastructure"] for cell in cells):
        reporter.say(
            f"missing: {broken} of {result['planned']} episodes, which infrastructure broke; live "
            f"them again with: {again}"
        )
    if done.cancelled:
        return 130
    return 0 if 2 * result["scored"] > result["episodes"] else 1


# ── what was asked ───────────────────────────────────────────────────────────


def asked_by(options: argparse.Namespace) -> Asked:
    """What the options ask for; raises InputError for what cannot be meant."""
    from palaestra.api.asking import asked
    from palaestra.evaluation.plan import parse_shard
    from palaestra.rollout.gateway.agent import name_of

    walls = (options.agent_sandbox, options.agent_mount or (), options.agent_limit or ())
    rewards = not options.agent_hide_rewards
    commands = [name_of(c, *walls, rewards=rewards) for c in options.agent_command or ()]
    if (any(walls) or not rewards) and not commands:
        raise InputError(
            "--agent-sandbox, -mount, -limit and -hide-rewards are for programs: --agent-command."
        )
    given = {name: getattr(options, name) for name in SUBJECT}
    agents = [*(options.agent or ()), *commands]
    given |= {"agent": agents or None, "roles": _roles(options.role or [])}
    said = cast("Subject", {name: value for name, value in given.items() if value is not None})
    found = asked(options.env, said, _flag)
    shard = None if options.shard is None else parse_shard(options.shard)
    return replace(found, shard=shard, prices=options.price or ())


SUBJECT = (
    "suite", "model", "n", "split", "repeats", "turns", "max_tokens", "deadline", "tried", "seed",
    "temperature",
)  # fmt: skip
"""Options that `palaestra.api.asking.Subject` has under the same names, and in the same form."""


def _flag(option: str) -> str:
    if option == "n":
        return "-n"
    known = {"folder": "--run", "prices": "--price MODEL=IN/OUT"}
    return known.get(option, f"--{option.replace('_', '-')}")


def _roles(given: list[str]) -> dict[str, str]:
    """Role to model, of those that have one of their own."""
    found = {}
    for text in given:
        role, equals, name = text.partition("=")
        if not (role and equals and name):
            raise InputError(f"--role {text} names no model; write --role NAME=MODEL.")
        found[role] = name
    return found


def _effort(options: argparse.Namespace) -> Effort:
    """How the options want it worked on."""
    from palaestra.api.asking import Effort
    from palaestra.experiment.limits import Allowance

    at_once: dict[str, int] = {}
    for text in options.concurrency or ():
        model, _, count = text.rpartition("=")
        if not (count.isdecimal() and int(count) > 0):
            raise InputError(f"--concurrency {text} cannot be; write N or MODEL=N, N at least 1.")
        at_once[model] = int(count)
    spent = Allowance(options.budget_tokens, options.budget_money, options.budget_seconds)
    return Effort(at_once, options.workers, spent)
