"""`palaestra serve`: sessions for programs that come from elsewhere; an `eval` of the outside."""

from __future__ import annotations

import argparse
from dataclasses import replace
from urllib.parse import quote

from palaestra.cli import eval_command
from palaestra.core.errors import InputError

EXAMPLE = "palaestra serve probe/umbrella-4 --model random"

OF_NEW_RUNS = (
    "env", "model", "task", "n", "split", "turns", "max_tokens", "deadline", "seed", "host", "port",
    "public_url", "hide_rewards", "folder",
)  # fmt: skip
"""Options that a run that is gone on with has settled."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("env", metavar="ENV", nargs="?", help="an environment of `palaestra list`")
    parser.add_argument("--model", metavar="NAME", help="as for `palaestra eval`")
    parser.add_argument("--task", type=int, metavar="N", help="only that task of the split")
    parser.add_argument("-n", type=int, metavar="N", help="sessions for so many tasks (default: 1)")
    parser.add_argument("--split", help="train, validation or test (the default)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the sampling (default: 1)")
    parser.add_argument("--turns", type=int, metavar="T", help="actions per episode")
    parser.add_argument("--max-tokens", type=int, metavar="M", help="per reply, at most")
    parser.add_argument(
        "--deadline", type=float, metavar="S", help="seconds after which a session ends"
    )
    parser.add_argument("--host", help="where to listen (127.0.0.1)")
    parser.add_argument("--port", type=int, help="where to listen (any free one)")
    parser.add_argument(
        "--public-url", metavar="URL", help="printed instead, such as that of a proxy before it"
    )
    parser.add_argument(
        "--hide-rewards", action="store_const", const=True,
        help="programs are not told what their actions earned",
    )  # fmt: skip
    parser.add_argument("--run", metavar="FOLDER", dest="folder", help="where to keep the episodes")
    parser.add_argument("--concurrency", metavar="N", help="sessions open at once (default: 64)")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that stopped")


def run(options: argparse.Namespace) -> int:
    if options.resume is not None:
        return _resume(options)
    if options.env is None or options.model is None:
        raise InputError("Give the environment and --model NAME, or --resume RUN.")
    if options.task is not None and options.n is not None:
        raise InputError("--task names one task and -n counts some; give one of the two.")
    if options.task is not None and options.task < 0:
        raise InputError(f"--task {options.task} cannot be; tasks are numbered from 0.")
    words = ["--env", options.env, "--agent", _agent(options), "--model", options.model]
    for name in ("split", "seed", "turns", "max_tokens", "deadline"):
        if getattr(options, name) is not None:
            words.append(f"--{name.replace('_', '-')}={getattr(options, name)}")
    if options.folder is not None:
        words.append(f"--run={options.folder}")
    evaluated = _parsed([*words, "-n", str(options.n or 1)], options)
    asked = eval_command.asked_by(evaluated)
    if options.task is not None:
        alone = [entry.model_copy(update={"tasks": (options.task,)}) for entry in asked.entries]
        asked = replace(asked, entries=alone)
    return eval_command.begin(asked, evaluated)


def _resume(options: argparse.Namespace) -> int:
    for name in OF_NEW_RUNS:
        if getattr(options, name) is not None:
            raise InputError(
                "--resume goes on with what the run serves, at its address; leave out all but "
                "--concurrency, or start a new run without --resume."
            )
    return eval_command.run(_parsed([f"--resume={options.resume}"], options))


def _parsed(words: list[str], options: argparse.Namespace) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    eval_command.configure(parser)
    if options.concurrency is not None:
        words = [*words, f"--concurrency={options.concurrency}"]
    return parser.parse_args([*words, "--json"])


def _agent(options: argparse.Namespace) -> str:
    told = {
        "host": options.host or "127.0.0.1",
        "port": str(options.port or 0),
        "public": options.public_url or "",
        "rewards": "false" if options.hide_rewards else "",
    }
    given = [f"{name}={quote(value, safe=':/[]')}" for name, value in told.items() if value]
    return f"outside?{'&'.join(given)}"
