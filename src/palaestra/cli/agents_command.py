"""`palaestra agents`: compare agents, and what becomes of what they wrote and recorded.

`library` and `learn` are in files of their own. `compare`: agents on the same held-out tasks, each
episode at an equal budget. It is an evaluation (`palaestra eval`) of many agents with one model,
kept in a run folder and gone on with where it stopped, whose leaderboard is put as a comparison
with the first agent. The budget of an episode is of tokens read and sampled, and of turns. So that
models which have no tokens of their own (`expert`, `random`, `null`) can be held to it, and cost
something, the tokenizer of SmolLM2 counts for them.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli import agents_learning, agents_library
from palaestra.cli.interrupt import Stopped, run_until_interrupted
from palaestra.core.errors import InputError
from palaestra.core.task import Split

if TYPE_CHECKING:
    from palaestra.core.agent import Agent
    from palaestra.core.episode import Episode
    from palaestra.core.model import Model, Renderer
    from palaestra.evaluation.plan import Cell
    from palaestra.experiment.matrix import Asked

EXAMPLE = "palaestra agents compare babyai/GoToLocalS5N2 --agents direct,react,summary"
OURS = "palaestra.agents."  # agents that need no program beside them
UNTOKENED = ("expert", "random", "null")
COUNTER = "smollm2-135m"  # whose tokenizer counts for them
TOKENS, TASKS, REPLY = 16_384, 30, 128
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    new = verbs.add_parser("compare", help="agents side by side", epilog=f"Example: {EXAMPLE}")
    new.add_argument("env", nargs="+", metavar="ENV", help="environments; see `palaestra list`")
    new.add_argument(
        "--agents", metavar="A,B,C",
        help="the others are compared with the first (default: direct, then all that need no "
        "option)",
    )  # fmt: skip
    new.add_argument(
        "--model", default="expert?error=0.2", metavar="M", help="default: %(default)s"
    )
    new.add_argument(
        "--tokens", type=int, default=TOKENS, metavar="N",
        help="read and sampled at most, per episode (default: %(default)s)",
    )  # fmt: skip
    new.add_argument(
        "--turns", type=int, metavar="N", help="actions per episode (default: the world's own)"
    )
    new.add_argument("--tasks", type=int, default=TASKS, metavar="N", help="default: %(default)s")
    new.add_argument("--seeds", default="1", metavar="A,B", help="of the sampling (default: 1)")
    new.add_argument("--temperature", type=float, default=1.0, metavar="X", help="default: 1")
    new.add_argument("--max-tokens", type=int, default=REPLY, metavar="N", help="per reply")
    new.add_argument("--price", action="append", default=[], metavar="MODEL=IN/OUT")
    new.add_argument("--concurrency", type=int, default=8, metavar="N", help="episodes at once")
    new.add_argument(
        "--run", metavar="FOLDER", dest="folder",
        help="where to keep the episodes; one that is there is gone on with (runs/agents-…)",
    )  # fmt: skip
    new.add_argument("--json", action="store_true", help="print one JSON object")
    agents_library.configure(verbs)
    agents_learning.configure(verbs)


def run(options: argparse.Namespace) -> int:
    match options.verb:
        case "library":
            return agents_library.run(options)
        case "learn":
            return agents_learning.run(options)
        case _:
            return compare(options)


def compare(options: argparse.Namespace) -> int:
    from palaestra.cli.agents_text import rows, show
    from palaestra.evaluation import samples
    from palaestra.evaluation.leaderboard import build
    from palaestra.evaluation.plan import DOCUMENT, as_json, from_json
    from palaestra.experiment.evaluating import evaluate
    from palaestra.experiment.limits import Allowance
    from palaestra.experiment.matrix import CONTEXT, plan
    from palaestra.experiment.progress import Reporter
    from palaestra.models.registry import load_model
    from palaestra.store.run import RunFolder, default_root, new_run_path

    reporter = Reporter()
    agents = options.agents.split(",") if options.agents else every_agent()
    made, notes = plan(_asked(options, agents))
    folder = Path(options.folder) if options.folder else new_run_path(default_root(), "agents")
    about = f"agents compared with {options.model} on {', '.join(options.env)}"
    calls: dict[tuple[str, str], list[int]] = {}  # of each scored episode, by agent and world

    def load(name: str, agent: Agent) -> Model:
        slots = options.concurrency + 2
        model = load_model(name, agent, slots=slots, context=CONTEXT, progress=reporter.say)
        if name.partition("?")[0] in UNTOKENED:
            model.renderer = counter()
        return model

    def told(cell: Cell, episodes: list[Episode]) -> None:
        scored = [len(episode.calls) for episode in episodes if episode.outcome.scored]
        calls.setdefault((cell.agent, cell.environment), []).extend(scored)

    known = (folder / "run.json").is_file()
    recipe = {"command": "agents", "summary": about}
    with RunFolder.open(folder) if known else RunFolder.create(folder, recipe) as kept:
        if kept.database.get(DOCUMENT) is None:
            kept.database.put(DOCUMENT, as_json(made))
        elif from_json(kept.database.get(DOCUMENT), folder) != made:
            raise InputError(f"'{folder}' holds another comparison; name another folder.")
        reporter.say(f"[bold]{folder}[/bold]: {about}")
        for note in notes:
            reporter.say(note)
        work = evaluate(
            made, kept, reporter, load=load, concurrency={"": options.concurrency},
            allowance=Allowance(), told=told, workers=0,
        )  # fmt: skip
        try:
            run_until_interrupted(work)
        except Stopped:
            print(f"\nStopped; give --run {folder} to go on.")
            return 130
    board = build(samples.read(folder))
    found: Row = {
        "run": str(folder),
        "model": options.model,
        "tokens": options.tokens,
        "turns": {cell.environment: cell.turns for cell in made.cells},
        "counted_by": COUNTER if options.model.partition("?")[0] in UNTOKENED else options.model,
        "environments": {env: rows(board, env, agents, calls) for env in board.weights},
        "notes": list(board.notes),
    }
    print(json.dumps(found)) if options.json else show(found)
    return 0


def _asked(options: argparse.Namespace, agents: list[str]) -> Asked:
    """Raises InputError for a number that cannot be."""
    from palaestra.evaluation.suite import Entry, Limits
    from palaestra.experiment.matrix import Asked

    for name in ("tokens", "tasks", "max_tokens", "concurrency", "turns"):
        value = getattr(options, name)
        if value is not None and value < 1:
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} {value} leaves nothing to do; give 1 or more.")
    seeds = options.seeds.split(",")
    if not all(seed.strip().isdecimal() for seed in seeds):
        raise InputError(f"--seeds {options.seeds} cannot be; write numbers, such as 1,2,3.")
    entries = [
        Entry(
            environment=id,
            split=Split.TEST,
            tasks=options.tasks,
            turns=options.turns,
            max_tokens=options.max_tokens,
        )
        for id in options.env
    ]
    return Asked(
        entries=entries,
        agents=agents,
        models=[options.model],
        seeds=[int(seed) for seed in seeds],
        temperature=options.temperature,
        limits=Limits(total_tokens=options.tokens),
        prices=options.price,
    )


def every_agent() -> list[str]:
    """Direct, then every agent of ours that plays one player and needs no option."""
    from palaestra.agents.registry import agent_class, agents, make_agent

    found = ["direct"]
    for name, target in sorted(agents().items()):
        if not target.startswith(OURS) or name in found or agent_class(name).several:
            continue
        try:
            make_agent(name)
        except InputError:
            continue
        found.append(name)
    return found


@cache
def counter() -> Renderer:
    from palaestra.models import weights
    from palaestra.models.registry import renderer_of

    return renderer_of(weights.prepare(COUNTER, lambda sentence: None))
