"""`palaestra serve`: serve sessions to external programs, as an evaluation.

With `--team` the programs are not whole agents: they register as members of the team.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from palaestra.cli import eval_command
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.api.registering import Registration

EXAMPLE = "palaestra serve probe/umbrella-4 --model random"

OF_NEW_RUNS = (
    "env", "model", "team", "role", "task", "n", "split", "turns", "max_tokens", "deadline", "seed",
    "hide_rewards", "folder",
)  # fmt: skip
"""Options that a resumed run has fixed."""
ADDRESS = "host", "port", "public_url"
"""Options that a resumed run has fixed, unless a team acts."""
TIMES = "heartbeat", "patience"
"""Options of a team."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("env", metavar="ENV", nargs="?", help="an environment of `palaestra list`")
    parser.add_argument("--model", metavar="NAME", help="as for `palaestra eval`")
    parser.add_argument(
        "--team", metavar="NAME",
        help="processes register as members of this team: those whose model is 'registered'",
    )  # fmt: skip
    parser.add_argument(
        "--role", action="append", metavar="NAME=MODEL",
        help="the model of one member, such as critic=registered (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--heartbeat", type=float, metavar="S",
        help="seconds in which a process shows that it is alive; after three it is gone (5)",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=float, metavar="S",
        help="seconds without a process of its role after which a member forfeits (60)",
    )  # fmt: skip
    parser.add_argument("--task", type=int, metavar="N", help="only that task of the split")
    parser.add_argument(
        "-n", type=int, metavar="N", help="number of tasks with a session (default: 1)"
    )
    parser.add_argument("--split", help="train, validation or test (the default)")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the sampling (default: 1)")
    parser.add_argument("--turns", type=int, metavar="T", help="actions per episode")
    parser.add_argument("--max-tokens", type=int, metavar="M", help="maximum tokens per reply")
    parser.add_argument(
        "--deadline", type=float, metavar="S", help="seconds after which a session ends"
    )
    parser.add_argument("--host", help="where to listen (127.0.0.1)")
    parser.add_argument("--port", type=int, help="where to listen (any free one)")
    parser.add_argument(
        "--public-url", metavar="URL", help="address to print instead, such as that of a proxy"
    )
    parser.add_argument(
        "--hide-rewards", action="store_const", const=True,
        help="programs do not receive the rewards of their actions",
    )  # fmt: skip
    parser.add_argument(
        "--run", metavar="FOLDER", dest="folder", help="where to store the episodes"
    )
    parser.add_argument("--concurrency", metavar="N", help="concurrent sessions (default: 64)")
    parser.add_argument("--resume", metavar="RUN", help="resume a run that stopped")


def run(options: argparse.Namespace) -> int:
    if options.resume is not None:
        return _resume(options)
    if options.env is None or options.model is None:
        raise InputError(
            "The environment or the model is missing; give ENV and --model NAME, or --resume RUN."
        )
    if options.task is not None and options.n is not None:
        raise InputError("--task and -n exclude each other; drop one.")
    if options.task is not None and options.task < 0:
        raise InputError(f"--task {options.task} is negative; tasks are numbered from 0.")
    arguments = ["--env", options.env, "--model", options.model]
    if options.team is None:
        for name in ("role", *TIMES):
            if getattr(options, name) is not None:
                raise InputError(f"--{name} is for members of a team; add --team, or drop it.")
        arguments += ["--agent", _agent(options)]
    else:
        if options.hide_rewards:
            raise InputError("--hide-rewards has no effect: members see no rewards; drop it.")
        arguments += ["--team", options.team, *(f"--role={one}" for one in options.role or ())]
    for name in ("split", "seed", "turns", "max_tokens", "deadline"):
        if getattr(options, name) is not None:
            arguments.append(f"--{name.replace('_', '-')}={getattr(options, name)}")
    if options.folder is not None:
        arguments.append(f"--run={options.folder}")
    evaluated = _parsed([*arguments, "-n", str(options.n or 1)], options)
    asked = eval_command.asked_by(evaluated)
    if options.task is not None:
        entries = [entry.model_copy(update={"tasks": (options.task,)}) for entry in asked.entries]
        asked = replace(asked, entries=entries)
    return eval_command.begin(asked, evaluated, _registration(options) if options.team else None)


def _resume(options: argparse.Namespace) -> int:
    for name in OF_NEW_RUNS:
        if getattr(options, name) is not None:
            raise InputError(
                "--resume uses the run's own settings; drop all options but --concurrency and, if "
                "a team acts, --host, --port, --public-url, --heartbeat and --patience."
            )
    given = any(getattr(options, name) is not None for name in (*ADDRESS, *TIMES))
    resumed = _parsed([f"--resume={options.resume}"], options)
    return eval_command.resume(resumed, _registration(options) if given else None)


def _registration(options: argparse.Namespace) -> Registration:
    """Return where processes register as members."""
    from palaestra.api.registering import Registration

    given = {name: getattr(options, name) for name in ("host", "port", *TIMES)}
    given["public"] = options.public_url
    return Registration(**{name: value for name, value in given.items() if value is not None})


def _parsed(arguments: list[str], options: argparse.Namespace) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    eval_command.configure(parser)
    if options.concurrency is not None:
        arguments = [*arguments, f"--concurrency={options.concurrency}"]
    return parser.parse_args([*arguments, "--json"])


def _agent(options: argparse.Namespace) -> str:
    options_of_agent = {
        "host": options.host or "127.0.0.1",
        "port": str(options.port or 0),
        "public": options.public_url or "",
        "rewards": "false" if options.hide_rewards else "",
    }
    given = [
        f"{name}={quote(value, safe=':/[]')}" for name, value in options_of_agent.items() if value
    ]
    return f"outside?{'&'.join(given)}"
