"""`palaestra eval`: how agents and models do on environments' held-out tasks."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.eval_result import result_of, settings_of, title_of
from palaestra.cli.interrupt import Stopped, resumable, run_until_interrupted
from palaestra.core.errors import InputError, PalaestraError
from palaestra.core.task import parse_split

if TYPE_CHECKING:
    from palaestra.core.agent import Agent
    from palaestra.core.episode import Episode
    from palaestra.core.model import Model
    from palaestra.evaluation.plan import Cell, Plan
    from palaestra.experiment.limits import Allowance
    from palaestra.experiment.matrix import Asked
    from palaestra.experiment.progress import Reporter
    from palaestra.store.run import RunFolder

EXAMPLE = "palaestra eval --env babyai/GoToLocalS5N2 --agent direct --model random -n 16"
TASKS = 64  # where the user gives none

OF_SUITES = ("env", "n", "split", "repeats", "turns", "max_tokens", "deadline", "tried")
OF_NEW_RUNS = (
    *OF_SUITES, "suite", "agent", "agent_command", "agent_sandbox", "agent_mount", "agent_limit",
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
        "--model", action="append", metavar="NAME",
        help="a name of `palaestra list models`, a run's folder, a checkpoint, "
        "openai:MODEL@URL, anthropic:MODEL@URL (r)",
    )  # fmt: skip
    new.add_argument(
        "--role", action="append", metavar="NAME=MODEL",
        help="another model for one role or player, such as user=openai:MODEL@URL (r)",
    )  # fmt: skip
    new.add_argument("-n", type=int, metavar="N", help=f"tasks (default: {TASKS})")
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
        help="episodes lived at once, of one model or of each (default: 64, and 8 a core where "
        "each world is a Java virtual machine) (r)",
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
    from palaestra.evaluation.plan import DOCUMENT, as_json
    from palaestra.evaluation.power import foresight
    from palaestra.experiment.machine import as_document
    from palaestra.experiment.matrix import plan
    from palaestra.experiment.progress import Reporter
    from palaestra.store.run import RunFolder, default_root, new_run_path
    from palaestra.store.schema import Durability

    made, notes = plan(asked)
    concurrency, allowance = _concurrency(options, made), _allowance(options, made)
    family = asked.entries[0].environment.partition("/")[2] or asked.entries[0].environment
    name = asked.suite.name if asked.suite is not None else family
    folder = (
        Path(options.folder) if options.folder else new_run_path(default_root(), f"eval-{name}")
    )
    reporter = Reporter()
    documents = {DOCUMENT: as_json(made), "machine": as_document()}
    lasting = Durability(options.durability or "normal")
    with RunFolder.create(
        folder, settings_of(made), documents=documents, durability=lasting
    ) as kept:
        reporter.say(f"[bold]{folder}[/bold]: {title_of(made)}")
        for note in (*notes, foresight(made.tasks)):
            reporter.say(note)
        return _work(made, kept, folder, reporter, concurrency, allowance, options)


def _resume(options: argparse.Namespace) -> int:
    from palaestra.evaluation.plan import DOCUMENT, from_json
    from palaestra.experiment import control
    from palaestra.experiment.progress import Reporter
    from palaestra.store.run import RunFolder

    for name in OF_NEW_RUNS:
        if getattr(options, name) is not None:
            raise InputError(
                f"--resume goes on with what the run evaluates; drop {_flag(name)}, or start a "
                "new run without --resume."
            )
    folder = Path(options.resume)
    with RunFolder.open(folder) as kept:
        with kept.telling_versions():
            made = from_json(kept.database.get(DOCUMENT), folder)
        concurrency, allowance = _concurrency(options, made), _allowance(options, made)
        if options.concurrency:  # said later than what was wished from outside
            control.change(folder, concurrency=None)
        reporter = Reporter()
        reporter.say(f"resuming [bold]{folder}[/bold]: {title_of(made)}")
        if of_another := kept.note_version():
            reporter.say(of_another)
        return _work(made, kept, folder, reporter, concurrency, allowance, options)


def _work(
    made: Plan,
    kept: RunFolder,
    folder: Path,
    reporter: Reporter,
    concurrency: dict[str, int],
    allowance: Allowance,
    options: argparse.Namespace,
) -> int:
    """Evaluate, store the result and print it; returns the exit code."""
    from palaestra.cli.eval_text import render
    from palaestra.evaluation.samples import summary, totals
    from palaestra.experiment.crowd import usual
    from palaestra.experiment.evaluating import evaluate
    from palaestra.experiment.matrix import CONTEXT
    from palaestra.models.registry import load_model

    def load(name: str, agent: Agent) -> Model:
        said = concurrency.get(name) or concurrency.get("")
        most = said or max(usual(cell.environment) for cell in made.cells)
        slots = min(most, made.episodes) + 2
        return load_model(name, agent, slots=slots, context=CONTEXT, progress=reporter.say)

    found: dict[str, dict[str, Any]] = {}

    def tell(cell: Cell, episodes: list[Episode]) -> None:
        found[cell.phase] = summary(episodes, made.prices)

    work = evaluate(
        made,
        kept,
        reporter,
        load=load,
        concurrency=concurrency,
        allowance=allowance,
        told=tell,
        workers=options.workers,
    )
    again = f"palaestra eval --resume {folder}"
    with resumable(again):
        try:
            done = run_until_interrupted(work)
        except Stopped:
            print(
                f"\nStopped; finished episodes are kept in {folder}. Go on with: {again}",
                file=sys.stderr,
            )
            return 130
        except ExceptionGroup as group:
            raise first_error(group) from None
    result = result_of(made, done, found, str(folder))
    kept.database.put("evaluation", result)
    kept.database.put("totals", {**(kept.database.get("totals") or {}), **totals([result])})
    if done.stopped is not None:
        reporter.say(f"stopped because {done.stopped}; go on with: {again}")
    if options.json:
        print(json.dumps(result))
    else:
        render(result)
    if broken := sum(cell["faults"]["infrastructure"] for cell in found.values()):
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
    from palaestra.evaluation.plan import parse_shard
    from palaestra.evaluation.suite import Entry, Limits, load
    from palaestra.experiment.matrix import Asked
    from palaestra.rollout.gateway.agent import name_of

    for option in ("n", "repeats", "turns", "max_tokens", "tried", "deadline"):
        value = getattr(options, option)
        if value is not None and not value >= (1 if option != "deadline" else 1e-9):
            least = "more than 0" if option == "deadline" else "1 or more"
            raise InputError(f"{_flag(option)} {value} leaves nothing to do; give {least}.")
    if not options.model:
        raise InputError("--model is missing; `palaestra list models` shows which there are.")
    if (options.env is None) == (options.suite is None):
        raise InputError("Give the environments by --env, or a suite by --suite (one of the two).")
    suite = None if options.suite is None else load(options.suite)
    if suite is None:
        split = parse_split(options.split or "test")
        entries = [
            Entry(
                environment=id,
                split=split,
                tasks=options.n or TASKS,
                repeats=options.repeats or 1,
                turns=options.turns,
                max_tokens=options.max_tokens,
            )
            for id in options.env
        ]
        for id in options.env:
            if options.env.count(id) > 1:
                raise InputError(f"--env {id} is given twice; give it once (see --repeats).")
    else:
        for name in OF_SUITES:
            if getattr(options, name) is not None:
                raise InputError(
                    f"The suite '{suite.name}' says what is evaluated; drop {_flag(name)}, or "
                    "write a suite of your own."
                )
        entries = list(suite.entries)
    walls = (options.agent_sandbox, options.agent_mount or (), options.agent_limit or ())
    commands = [name_of(command, *walls) for command in options.agent_command or ()]
    if any(walls) and not commands:
        raise InputError("--agent-sandbox, -mount and -limit are for programs: --agent-command.")
    return Asked(
        entries=entries,
        agents=[*(options.agent or ()), *commands] or ["direct"],
        models=options.model,
        seeds=options.seed or [1],
        roles=_roles(options.role or []),
        temperature=1.0 if options.temperature is None else options.temperature,
        limits=suite.limits if suite else Limits(seconds=options.deadline, tried=options.tried),
        suite=suite,
        shard=None if options.shard is None else parse_shard(options.shard),
        prices=options.price or (),
    )


def _flag(option: str) -> str:
    if option == "folder":
        return "--run"
    return "-n" if option == "n" else f"--{option.replace('_', '-')}"


def _roles(given: list[str]) -> dict[str, str]:
    """Role to model, of those that have one of their own."""
    found = {}
    for text in given:
        role, equals, name = text.partition("=")
        if not (role and equals and name):
            raise InputError(f"--role {text} names no model; write --role NAME=MODEL.")
        found[role] = name
    return found


def _concurrency(options: argparse.Namespace, made: Plan) -> dict[str, int]:
    """Episodes at once by model, as far as is said; under "" that of any other one."""
    known = {cell.model for cell in made.cells}
    found: dict[str, int] = {}
    for text in options.concurrency or ():
        model, _, count = text.rpartition("=")
        if not (count.isdecimal() and int(count) > 0):
            raise InputError(f"--concurrency {text} cannot be; write N or MODEL=N, N at least 1.")
        if model and model not in known:
            names = ", ".join(sorted(known))
            raise InputError(f"--concurrency {text} is of nobody: the models are {names}.")
        found[model] = int(count)
    return found


def _allowance(options: argparse.Namespace, made: Plan) -> Allowance:
    from palaestra.experiment.limits import Allowance

    if options.workers < 0:
        raise InputError(f"--workers {options.workers} cannot be; give 0 or more.")
    for kind in ("tokens", "money", "seconds"):
        value = getattr(options, f"budget_{kind}")
        if value is not None and not value > 0:
            raise InputError(f"--budget-{kind} {value} leaves nothing to do; give more than 0.")
    if options.budget_money is not None and not made.prices:
        raise InputError(
            "--budget-money needs a price to count with; give --price MODEL=IN/OUT of a million "
            "tokens (when the run is started)."
        )
    return Allowance(options.budget_tokens, options.budget_money, options.budget_seconds)


def first_error(group: ExceptionGroup[Any]) -> Exception:
    """The error of ours in a group (the others followed from it), or else the group."""
    for error in group.exceptions:
        inner = first_error(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(inner, PalaestraError):
            return inner
    return group
