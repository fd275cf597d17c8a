"""The command line: `palaestra COMMAND`.

Exit codes: 0 done, 1 ran but failed, 2 bad input (or a machine on which nothing can run),
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
from palaestra.core.visible import visible
from palaestra.experiment.machine import plan_threads

FIRST = """\
palaestra: build, run, train and evaluate LLM agents in interactive environments.

  palaestra doctor          check this machine, and what to do if something lacks
  palaestra train quick     train an agent, test it, and write a report
  palaestra view            look at what it did, in a browser

All commands: palaestra --help"""

COMMANDS = {
    "train": "train a policy from a recipe; a report at the end",
    "eval": "evaluate agents and models on environments or a suite",
    "leaderboard": "put agents and models of eval runs side by side",
    "advise": "say which agent and model to take under constraints",
    "ctl": "pause, retune or cancel a running evaluation",
    "agents": "compare agents at an equal budget; serve, or learn from, what they left",
    "serve": "open sessions to programs that come from elsewhere",
    "play": "act in an environment yourself",
    "list": "list environments, models, agents, algorithms, recipes or runs",
    "show": "show a run, or an episode turn by turn",
    "view": "look at runs and episodes in a browser",
    "index": "index the words of runs, so that the first search for some need not wait",
    "replay": "do recorded actions again, and name what the world does otherwise",
    "diff": "what changed between two runs on the same tasks, and how sure that is",
    "aggregate": "runs of several seeds as one figure with an interval",
    "ratings": "how strong players are, from recorded games between them",
    "exploitability": "what the best opponent would win from the players of recorded games",
    "judge": "measure a judge against the truth, and let it label episodes",
    "explain": "find the turn that lost an episode, and what a success depends on",
    "compare": "compare credit rules on recorded episodes, without training",
    "export": "write recorded episodes to a file for other programs",
    "import": "make a run of episodes that other programs recorded",
    "new": "write a package with an environment or agent of your own, its tests and entry point",
    "check-env": "hold an environment to its contract, clause by clause",
    "sandbox": "run one command in a sandbox and say how it ended",
    "doctor": "check this machine, or a run, and say what to do",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    with lasting_streams():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    if not (sys.argv[1:] if arguments is None else arguments):
        print(FIRST)
        return 0
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
    try:
        return int(options.execute(options))
    except PalaestraError as error:
        said = " ".join([str(error), *getattr(error, "__notes__", ())])
        print(f"palaestra: {visible(said)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("palaestra: interrupted", file=sys.stderr)
        return 130
