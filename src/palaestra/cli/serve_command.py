"""`palaestra serve`: sessions for programs that come from elsewhere; an `eval` of the outside."""

from __future__ import annotations

import argparse
from dataclasses import replace

from palaestra.cli import eval_command
from palaestra.core.errors import InputError

EXAMPLE = "palaestra serve probe/umbrella-4 --model random"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("env", metavar="ENV", help="an environment of `palaestra list`")
    parser.add_argument("--model", required=True, metavar="NAME", help="as for `palaestra eval`")
    parser.add_argument("--task", type=int, metavar="N", help="only that task of the split")
    parser.add_argument("-n", type=int, metavar="N", help="sessions for so many tasks (default: 1)")
    parser.add_argument("--split", help="train, validation or test (the default)")
    parser.add_argument("--turns", type=int, metavar="T", help="actions per episode")
    parser.add_argument("--max-tokens", type=int, metavar="M", help="per reply, at most")
    parser.add_argument(
        "--deadline", type=float, metavar="S", help="seconds after which a session ends"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="where to listen (any free one)")
    parser.add_argument("--run", metavar="FOLDER", dest="folder", help="where to keep the episodes")


def run(options: argparse.Namespace) -> int:
    if options.task is not None and options.n is not None:
        raise InputError("--task names one task and -n counts some; give one of the two.")
    if options.task is not None and options.task < 0:
        raise InputError(f"--task {options.task} cannot be; tasks are numbered from 0.")
    parser = argparse.ArgumentParser()
    eval_command.configure(parser)
    agent = f"outside?host={options.host}&port={options.port}"
    words = ["--env", options.env, "--agent", agent, "--model", options.model, "--json"]
    for name in ("split", "turns", "max_tokens", "deadline"):
        if getattr(options, name) is not None:
            words.append(f"--{name.replace('_', '-')}={getattr(options, name)}")
    if options.folder is not None:
        words.append(f"--run={options.folder}")
    evaluated = parser.parse_args([*words, "-n", str(options.n or 1)])
    asked = eval_command.asked_by(evaluated)
    if options.task is not None:
        alone = [entry.model_copy(update={"tasks": (options.task,)}) for entry in asked.entries]
        asked = replace(asked, entries=alone)
    return eval_command.begin(asked, evaluated)
