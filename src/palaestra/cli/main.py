"""The command line: `palaestra COMMAND`.

Exit codes: 0 done, 1 ran but failed, 2 bad input (or a machine that cannot run it),
130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from palaestra import __version__
from palaestra.cli.streams import lasting_streams
from palaestra.core.errors import PalaestraError
from palaestra.runtime.machine import plan_threads
from palaestra.runtime.visible_text import visible

FIRST = """\
palaestra: build, run, train and evaluate LLM agents in interactive environments.

  palaestra doctor          check this machine, and what to do if something is missing
  palaestra train quick     train an agent, test it, and write a report
  palaestra view            look at what it did, in a browser

All commands: palaestra --help"""

NO_TORCH = (
    "torch is not installed, and models in this process and training need it; install it with: "
    "pip install torch. Evaluations of the expert and of remote models work without it."
)

COMMANDS = {
    "train": "train a policy from a recipe; a report at the end",
    "eval": "evaluate agents and models on environments or a suite",
    "leaderboard": "compare agents and models of eval runs",
    "advise": "recommend an agent and model under constraints",
    "ctl": "pause, adjust or cancel a running evaluation",
    "agents": "compare agents at an equal budget; serve or learn from what they recorded",
    "serve": "serve sessions to external programs",
    "play": "act in an environment yourself",
    "list": "list environments, models, agents, algorithms, recipes or runs",
    "show": "show a run, or an episode turn by turn",
    "view": "look at runs and episodes in a browser",
    "index": "build the search index of runs ahead of the first search",
    "replay": "repeat recorded actions, and report where the environment differs",
    "rescore": "judge recorded episodes again, by the environments of today",
    "diff": "compare two runs on the same tasks, with tests and intervals",
    "aggregate": "aggregate runs of several seeds, with intervals",
    "team": "show what members contributed to a run, and write what their team learned",
    "ratings": "rate players from recorded games between them",
    "exploitability": "measure what a best opponent would win from players of recorded games",
    "judge": "measure a judge against the truth, and let it label episodes",
    "explain": "find the turn that lost an episode, and test the robustness of successes",
    "compare": "compare credit rules on recorded episodes, without training",
    "export": "write recorded episodes to a file for other programs",
    "import": "make a run of episodes that other programs recorded",
    "new": "write a package for your own environment or agent, with tests and entry point",
    "app": "check a blueprint of an app, and print its documentation",
    "synthesise": "make training data about a domain: blueprints, worlds, tasks, dialogues, rows",
    "check-env": "test an environment against its contract, clause by clause",
    "sandbox": "run one command in a sandbox and report how it ended",
    "doctor": "check this machine or a run, and how to fix problems",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    with lasting_streams():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    if not (sys.argv[1:] if arguments is None else arguments):
        print(FIRST)
        return 0
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except PalaestraError as error:
        message = " ".join([str(error), *getattr(error, "__notes__", ())])
        print(f"palaestra: {visible(message)}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print(f"palaestra: {NO_TORCH}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        message = ". ".join(["interrupted", *getattr(error, "__notes__", ())])
        print(f"palaestra: {visible(message)}", file=sys.stderr)
        return 130


def _run(arguments: Sequence[str]) -> int:
    """Run one command; raise its errors."""
    plan_threads()
    parser = argparse.ArgumentParser(
        prog="palaestra",
        description="Build, run, train and evaluate LLM agents in interactive environments.",
        epilog="Example: palaestra train quick",
    )
    parser.add_argument("--version", action="version", version=f"palaestra {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"palaestra.cli.{name.replace('-', '_')}_command")
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary.capitalize() + ".",
            epilog=f"Example: {module.EXAMPLE}",
        )
        module.configure(sub)
        sub.set_defaults(execute=module.run)
    options = parser.parse_args(arguments)
    return int(options.execute(options))
