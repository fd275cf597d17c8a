"""`palaestra eval`: evaluate agents and models on held-out tasks of environments."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from palaestra.cli import cluster_options
from palaestra.cli.interrupt import (
    TAKE_OVER,
    Stopped,
    check_take_over,
    resumable,
    resuming,
    run_until_interrupted,
    unbegun,
)
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.api.evaluating import Evaluation
    from palaestra.api.evaluation_request import Effort, Subject
    from palaestra.api.registering import Registration
    from palaestra.evaluation.running.matrix import MatrixRequest

EXAMPLE = "palaestra eval --env babyai/GoToLocalS5N2 --agent direct --model random -n 16"

OF_SUITES = ("env", "n", "split", "repeats", "turns", "max_tokens", "deadline", "tried")
OF_NEW_RUNS = (
    *OF_SUITES, "factor", "suite", "agent", "agent_command", "agent_sandbox", "agent_mount",
    "agent_limit", "agent_hide_rewards", "model", "role", "seed", "temperature", "reasoning_tokens",
    "context", "keep_thoughts", "shard", "price", "folder", "durability", "player", "team",
    "player_turns", "player_tokens", "player_seconds", "player_turn_seconds", "player_invalid",
)  # fmt: skip
"""Options that define what is evaluated, which a resumed run has fixed."""


def configure(parser: argparse.ArgumentParser) -> None:
    new = parser.add_argument_group(
        "what is evaluated: every agent with every model in every environment"
    )
    new.add_argument("--env", action="append", metavar="ID", help="see `palaestra list` (r)")
    new.add_argument(
        "--factor", metavar="NAME",
        help="also evaluate the ids that differ from --env in this alone, such as operator, tools "
        "or speed, and compare them with it task by task",
    )  # fmt: skip
    new.add_argument("--suite", metavar="FILE", help="a TOML file of environments and tasks")
    new.add_argument("--agent", action="append", metavar="NAME", help="default: direct (r)")
    new.add_argument(
        "--agent-command", action="append", metavar="COMMAND",
        help="a program that is the agent, such as 'python my_agent.py'; see docs/gateway.md (r)",
    )  # fmt: skip
    new.add_argument(
        "--agent-sandbox", metavar="KIND",
        help="run the programs in a sandbox that can reach only the gateway: bubblewrap, or auto",
    )  # fmt: skip
    new.add_argument(
        "--agent-mount",
        action="append",
        metavar="PATH",
        help="a path that the programs can read in the sandbox (r)",
    )
    new.add_argument(
        "--agent-limit", action="append", metavar="NAME=VALUE",
        help="a resource limit in the sandbox, such as memory=1000000000 (r)",
    )  # fmt: skip
    new.add_argument(
        "--agent-hide-rewards", action="store_const", const=True,
        help="programs do not receive the rewards of their actions",
    )  # fmt: skip
    new.add_argument(
        "--model", action="append", metavar="NAME",
        help="a name of `palaestra list models`, a run's folder, a checkpoint, a GGUF file, "
        "OWNER/NAME of the hub, openai:MODEL, anthropic:MODEL, openai:MODEL@URL (r)",
    )  # fmt: skip
    new.add_argument(
        "--role", action="append", metavar="NAME=MODEL",
        help="another model for one role or player, such as user=openai:MODEL@URL (r)",
    )  # fmt: skip
    new.add_argument(
        "--player", action="append", metavar="NAME=AGENT@MODEL",
        help="who plays for one player of a game, such as player0=react@smollm2-135m, in place of "
        "--agent (r)",
    )  # fmt: skip
    new.add_argument(
        "--team", action="append", metavar="[PLAYER=]NAME",
        help="a team that acts, in place of --agent or for a player of a game: a TOML file, a "
        "module:Class, or one of `palaestra list teams`; models by --role, of a player or a "
        "member (r)",
    )  # fmt: skip
    new.add_argument(
        "--player-turns", type=int, metavar="T",
        help="actions of each player; one that needs more forfeits, and so below",
    )  # fmt: skip
    new.add_argument("--player-tokens", type=int, metavar="M", help="tokens that each may sample")
    new.add_argument(
        "--player-seconds", type=float, metavar="S", help="seconds that each may decide, in total"
    )
    new.add_argument(
        "--player-turn-seconds", type=float, metavar="S",
        help="seconds that each may decide on one action; a late one passes where the environment "
        "has an action that does nothing, and else forfeits",
    )  # fmt: skip
    new.add_argument(
        "--player-invalid", type=int, metavar="K",
        help="actions in a row that are not understood, with which a player forfeits (default: 3)",
    )  # fmt: skip
    new.add_argument("-n", type=int, metavar="N", help="tasks (default: 64)")
    new.add_argument("--split", help="train, validation or test (the default)")
    new.add_argument(
        "--seed",
        type=int,
        action="append",
        metavar="N",
        help="seed of the sampling (default: 1) (r)",
    )
    new.add_argument("--repeats", type=int, metavar="R", help="episodes per task (default: 1)")
    new.add_argument(
        "--turns",
        type=int,
        metavar="T",
        help="actions per episode (default: the environment's own)",
    )
    new.add_argument("--temperature", type=float, metavar="X", help="default: 1; 0: greedy")
    new.add_argument(
        "--max-tokens", type=int, metavar="M",
        help="tokens per reply (default: 8 for direct, else 128; a remote model's own)",
    )  # fmt: skip
    new.add_argument(
        "--reasoning-tokens", type=int, metavar="M",
        help="reasoning tokens per reply, of --max-tokens, for models that keep reasoning apart",
    )  # fmt: skip
    new.add_argument(
        "--context", type=int, metavar="N",
        help="tokens of the longest conversation with a local model (default: 2048, or the "
        "model's own if shorter)",
    )  # fmt: skip
    new.add_argument(
        "--keep-thoughts", action="store_const", const=True,
        help="a local model's conversation goes on with its earlier thoughts where the chat "
        "template would drop them",
    )  # fmt: skip
    new.add_argument(
        "--deadline", type=float, metavar="S",
        help="seconds after which an episode is truncated(seconds), which is no success",
    )  # fmt: skip
    new.add_argument(
        "--tried", type=int, metavar="T",
        help="actions that a search may try in an episode, besides the actions that it takes",
    )  # fmt: skip
    new.add_argument(
        "--shard", metavar="K/N",
        help="only the K-th of N parts of the tasks; `palaestra leaderboard` joins the runs",
    )  # fmt: skip
    new.add_argument(
        "--price", action="append", metavar="MODEL=IN/OUT", help="price of a million tokens (r)"
    )
    how = parser.add_argument_group("how ((r): may be repeated)")
    how.add_argument(
        "--resume", metavar="RUN",
        help="resume a run that stopped; also run episodes again that infrastructure broke",
    )  # fmt: skip
    how.add_argument("--take-over", action="store_true", help=TAKE_OVER)
    how.add_argument(
        "--concurrency", action="append", metavar="[MODEL=]N",
        help="concurrent episodes, of one model or of each (default: 64; 8 a core if each "
        "environment is a Java virtual machine, 4 a core if the agent is a command) (r)",
    )  # fmt: skip
    how.add_argument(
        "--workers", type=int, default=1, metavar="N",
        help="processes for the environments; 0: this one (default: 1)",
    )  # fmt: skip
    cluster_options.add_to(
        how, more="; --workers is the number of processes for the environments of each worker"
    )
    how.add_argument(
        "--metrics", metavar="[HOST:]PORT",
        help="serve figures of the run as OpenMetrics at /metrics meanwhile (HOST: 127.0.0.1)",
    )  # fmt: skip
    how.add_argument("--budget-tokens", type=int, metavar="N", help="maximum read and sampled")
    how.add_argument("--budget-money", type=float, metavar="X", help="maximum cost; needs --price")
    how.add_argument("--budget-seconds", type=float, metavar="S", help="maximum seconds of work")
    how.add_argument(
        "--run", metavar="FOLDER", dest="folder", help="where to store the episodes (runs/eval-…)"
    )
    how.add_argument(
        "--durability", choices=("normal", "full"),
        help="whether the record survives a crash (normal, the default) or a power cut too",
    )  # fmt: skip
    how.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    with unbegun():
        if options.resume is not None:
            return resume(options)
        check_take_over(options)
        return begin(asked_by(options), options)


def begin(
    asked: MatrixRequest, options: argparse.Namespace, registration: Registration | None = None
) -> int:
    """Evaluate a request in a new run; return the exit code."""
    from palaestra.api.evaluating import Evaluation, new_folder
    from palaestra.api.metrics_server import serving
    from palaestra.runtime.progress import Reporter
    from palaestra.store.schema import Durability

    folder = Path(options.folder) if options.folder else new_folder(asked)
    with (
        resumable(resuming("eval", folder), folder),
        serving(options.metrics, folder) as figures,
        Evaluation.begin(
            asked,
            replace(_effort(options), registration=registration),
            folder,
            reporter=Reporter(),
            durability=Durability(options.durability or "normal"),
            name=_flag,
        ) as evaluation,
    ):
        return _work(evaluation, options.json, figures)


def resume(options: argparse.Namespace, registration: Registration | None = None) -> int:
    """Go on with a run that stopped; return the exit code."""
    from palaestra.api.evaluating import Evaluation
    from palaestra.api.metrics_server import serving
    from palaestra.runtime.progress import Reporter

    for name in OF_NEW_RUNS:
        if getattr(options, name) is not None:
            raise InputError(
                f"{_flag(name)} is fixed in a resumed run; drop it, or start a new run without "
                "--resume."
            )
    folder = Path(options.resume)
    with (
        resumable(resuming("eval", folder), folder),
        serving(options.metrics, folder) as figures,
        Evaluation.resume(
            folder,
            replace(_effort(options), registration=registration),
            reporter=Reporter(),
            name=_flag,
            take_over=options.take_over,
        ) as evaluation,
    ):
        return _work(evaluation, options.json, figures)


def _work(evaluation: Evaluation, as_json: bool, figures: str | None) -> int:
    """Evaluate and print the result; return the exit code."""
    from palaestra.api.result_text import render

    resume = resuming("eval", evaluation.folder)
    if figures is not None:
        evaluation.reporter.say(f"figures at {figures}")
    try:
        result = run_until_interrupted(evaluation.execute())
    except Stopped:
        print(
            f"\nStopped; finished episodes are kept in {evaluation.folder}. Resume with: {resume}",
            file=sys.stderr,
        )
        return 130
    done, reporter = evaluation.done, evaluation.reporter
    if done.stopped is not None:
        reporter.say(f"stopped because {done.stopped}; resume with: {resume}")
    if as_json:
        print(json.dumps(result))
    else:
        render(result)
    cells = result.get("cells", [result])
    if broken := sum(cell["faults"]["infrastructure"] for cell in cells):
        reporter.say(
            f"missing: {broken} of {result['planned']} episodes, which infrastructure broke; run "
            f"them again with: {resume}"
        )
    if done.cancelled:
        return 130
    return 0 if 2 * result["scored"] > result["episodes"] else 1


# ── the request ───────────────────────────────────────────────────────────


def asked_by(options: argparse.Namespace) -> MatrixRequest:
    """Return the request of the options; raise InputError for invalid ones."""
    from palaestra.api.evaluation_request import asked
    from palaestra.evaluation.running.evaluation_plan import parse_shard
    from palaestra.gateway.program_agents import name_of

    sandbox = (options.agent_sandbox, options.agent_mount or (), options.agent_limit or ())
    rewards = not options.agent_hide_rewards
    commands = [name_of(c, *sandbox, rewards=rewards) for c in options.agent_command or ()]
    if (any(sandbox) or not rewards) and not commands:
        raise InputError(
            "--agent-sandbox, -mount, -limit and -hide-rewards need a program; set --agent-command."
        )
    given = {name: getattr(options, name) for name in SUBJECT}
    agents = [*(options.agent or ()), *commands]
    given |= {"agent": agents or None, "roles": _named(options.role, "--role", "MODEL")}
    given["players"] = _named(options.player, "--player", "AGENT@MODEL") or None
    given |= _teams(options.team or ())
    subject = cast("Subject", {name: value for name, value in given.items() if value is not None})
    found = asked(options.env, subject, _flag)
    shard = None if options.shard is None else parse_shard(options.shard)
    return replace(found, shard=shard, prices=options.price or ())


SUBJECT = (
    "factor", "suite", "model", "n", "split", "repeats", "turns", "max_tokens", "deadline",
    "tried", "seed", "temperature", "reasoning_tokens", "context", "keep_thoughts",
    "player_turns", "player_tokens", "player_seconds", "player_turn_seconds", "player_invalid",
)  # fmt: skip
"""Options that `evaluation_request.Subject` has under the same names, and in the same form."""


def _flag(option: str) -> str:
    if option == "n":
        return "-n"
    known = {
        "folder": "--run",
        "prices": "--price MODEL=IN/OUT",
        "players": "--player",
        "teams": "--team",
        "roles": "--role",
    }
    return known.get(option, f"--{option.replace('_', '-')}")


def _teams(given: Sequence[str]) -> dict[str, object]:
    """Return the team of an environment's only player, or the teams of a game's players."""
    if not any("=" in text for text in given):
        if len(given) > 1:
            raise InputError(
                f"--team {given[1]} is a second team; write --team PLAYER=NAME for a game's "
                "players, or set one."
            )
        return {"team": given[0]} if given else {}
    return {"teams": _named(given, "--team", "TEAM")}


def _named(given: Sequence[str] | None, flag: str, what: str) -> dict[str, str]:
    """Return what texts of the form NAME=… give to each name."""
    found: dict[str, str] = {}
    for text in given or ():
        name, _, value = text.partition("=")
        if not (name and value):
            raise InputError(f"{flag} {text} is incomplete; write {flag} NAME={what}.")
        if name in found:
            raise InputError(f"{flag} names {name} twice; name it once.")
        found[name] = value
    return found


def _effort(options: argparse.Namespace) -> Effort:
    """Return the resources that the options set."""
    from palaestra.api.evaluation_request import Effort
    from palaestra.evaluation.running.spending_budget import SpendingBudget

    concurrency: dict[str, int] = {}
    for text in options.concurrency or ():
        model, _, count = text.rpartition("=")
        if not (count.isdecimal() and int(count) > 0):
            raise InputError(
                f"--concurrency {text} is invalid; write N or MODEL=N, with N of 1 or more."
            )
        concurrency[model] = int(count)
    allowance = SpendingBudget(options.budget_tokens, options.budget_money, options.budget_seconds)
    return Effort(concurrency, options.workers, allowance, cluster_options.on_of(options))
