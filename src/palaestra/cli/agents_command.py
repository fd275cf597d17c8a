"""`palaestra agents`: compare agents, and use what they wrote and recorded.

`library`, `learn` and `knowledge` have their own files. `compare` runs agents on the same held-out
tasks, each episode with an equal budget. It is an evaluation (`palaestra eval`) of many agents with
one model, stored in a run folder and resumable, whose leaderboard compares the agents with the
first one. The budget of an episode limits tokens read and sampled, and turns. The tokenizer of
SmolLM2 counts the tokens of models without their own (`expert`, `random`, `null`).
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli import agents_knowledge, agents_learning, agents_library
from palaestra.cli.interrupt import Stopped, run_until_interrupted
from palaestra.core.errors import InputError
from palaestra.core.task import Split

if TYPE_CHECKING:
    from palaestra.core.agent import Agent
    from palaestra.core.episode import Episode
    from palaestra.core.model import Model, Renderer
    from palaestra.evaluation.running.evaluation_plan import Cell
    from palaestra.evaluation.running.matrix import MatrixRequest

EXAMPLE = "palaestra agents compare babyai/GoToLocalS5N2 --agents direct,react,summary"
OURS = "palaestra.agents."  # agents that need no other program
UNTOKENED = ("expert", "random", "null")
COUNTER = "smollm2-135m"  # whose tokenizer counts their tokens
TOKENS, TASKS, REPLY = 16_384, 30, 128
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    new = verbs.add_parser("compare", help="compare agents", epilog=f"Example: {EXAMPLE}")
    new.add_argument("env", nargs="+", metavar="ENV", help="environments; see `palaestra list`")
    new.add_argument(
        "--agents", metavar="A,B,C",
        help="the first is the baseline of the others (default: direct, then all that need no "
        "option)",
    )  # fmt: skip
    new.add_argument(
        "--model", default="expert?error=0.2", metavar="M", help="default: %(default)s"
    )
    new.add_argument(
        "--tokens", type=int, default=TOKENS, metavar="N",
        help="maximum read and sampled per episode (default: %(default)s)",
    )  # fmt: skip
    new.add_argument(
        "--turns",
        type=int,
        metavar="N",
        help="actions per episode (default: the environment's own)",
    )
    new.add_argument("--tasks", type=int, default=TASKS, metavar="N", help="default: %(default)s")
    new.add_argument(
        "--seeds", default="1", metavar="A,B", help="seeds of the sampling (default: 1)"
    )
    new.add_argument("--temperature", type=float, default=1.0, metavar="X", help="default: 1")
    new.add_argument(
        "--max-tokens", type=int, metavar="N",
        help=f"per reply (default: {REPLY}; a remote model's own)",
    )  # fmt: skip
    new.add_argument(
        "--context", type=int, metavar="N",
        help="tokens of the longest conversation with a local model (default: 2048, or the "
        "model's own if shorter)",
    )  # fmt: skip
    new.add_argument("--price", action="append", default=[], metavar="MODEL=IN/OUT")
    new.add_argument("--concurrency", type=int, default=8, metavar="N", help="concurrent episodes")
    new.add_argument(
        "--run", metavar="FOLDER", dest="folder",
        help="where to store the episodes; an existing run is resumed (runs/agents-…)",
    )  # fmt: skip
    new.add_argument("--json", action="store_true", help="print one JSON object")
    agents_library.configure(verbs)
    agents_learning.configure(verbs)
    agents_knowledge.configure(verbs)


def run(options: argparse.Namespace) -> int:
    match options.verb:
        case "library":
            return agents_library.run(options)
        case "learn":
            return agents_learning.run(options)
        case "knowledge":
            return agents_knowledge.run(options)
        case _:
            return compare(options)


def compare(options: argparse.Namespace) -> int:
    from palaestra.api.evaluating import check_local
    from palaestra.cli.agents_text import rows, show
    from palaestra.evaluation.reports import cell_samples
    from palaestra.evaluation.reports.leaderboard import build
    from palaestra.evaluation.running.evaluation_plan import DOCUMENT, as_json, from_json
    from palaestra.evaluation.running.evaluation_run import evaluate
    from palaestra.evaluation.running.matrix import plan
    from palaestra.evaluation.running.spending_budget import SpendingBudget
    from palaestra.models.registry import REVISIONS, load_model, prepare_models
    from palaestra.runtime.progress import Reporter
    from palaestra.store.run_folder import RunFolder, default_root, new_run_path

    reporter = Reporter()
    agents = options.agents.split(",") if options.agents else every_agent()
    asked = _asked(options, agents)
    made, notes = plan(asked)
    check_local(asked, made.models, (), reporter, _flag)
    folder = Path(options.folder) if options.folder else new_run_path(default_root(), "agents")
    about = f"agents compared with {options.model} on {', '.join(options.env)}"
    calls: dict[tuple[str, str], list[int]] = {}  # of each scored episode, by agent and environment

    def load(name: str, agent: Agent) -> Model:
        slots = options.concurrency + 2
        recorded = opened.database.get(REVISIONS) or {}  # runs of older versions have none
        model = load_model(
            name, agent, slots=slots, context=made.cells[0].context, progress=reporter.say,
            revision=recorded.get(name),
        )  # fmt: skip
        if name.partition("?")[0] in UNTOKENED:
            model.renderer = counter()
        return model

    def count_calls(cell: Cell, episodes: list[Episode]) -> None:
        scored = [len(episode.calls) for episode in episodes if episode.outcome.scored]
        calls.setdefault((cell.agent, cell.environment), []).extend(scored)

    known = (folder / "run.json").is_file()
    recipe = {"command": "agents", "summary": about}
    documents = {} if known else {REVISIONS: prepare_models(sorted(made.models), reporter.say)}
    with (
        RunFolder.open(folder)
        if known
        else RunFolder.create(folder, recipe, documents=documents) as opened
    ):
        if opened.database.get(DOCUMENT) is None:
            opened.database.put(DOCUMENT, as_json(made))
        elif from_json(opened.database.get(DOCUMENT), folder) != made:
            raise InputError(f"'{folder}' holds another comparison; name another folder.")
        reporter.say(f"[bold]{folder}[/bold]: {about}")
        for note in notes:
            reporter.say(note)
        work = evaluate(
            made, opened, reporter, load=load, concurrency={"": options.concurrency},
            budget=SpendingBudget(), on_cell=count_calls, workers=0,
        )  # fmt: skip
        try:
            run_until_interrupted(work)
        except Stopped:
            print(f"\nStopped; resume with --run {folder}.")
            return 130
    board = build(cell_samples.read(folder))
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


def _asked(options: argparse.Namespace, agents: list[str]) -> MatrixRequest:
    """Return the evaluation to plan; raise InputError for invalid numbers."""
    from palaestra.evaluation.running.matrix import MatrixRequest
    from palaestra.evaluation.running.suite import Entry, Limits
    from palaestra.models.registry import is_remote

    for name in ("tokens", "tasks", "max_tokens", "concurrency", "turns", "context"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"{_flag(name)} {value} leaves nothing to do; give 1 or more.")
    seeds = options.seeds.split(",")
    if not all(seed.strip().isdecimal() for seed in seeds):
        raise InputError(f"--seeds {options.seeds} is not a list of numbers; write e.g. 1,2,3.")
    entries = [
        Entry(
            environment=id,
            split=Split.TEST,
            tasks=options.tasks,
            turns=options.turns,
            max_tokens=options.max_tokens or (None if is_remote(options.model) else REPLY),
        )
        for id in options.env
    ]
    return MatrixRequest(
        entries=entries,
        agents=agents,
        models=[options.model],
        seeds=[int(seed) for seed in seeds],
        temperature=options.temperature,
        context=options.context,
        limits=Limits(total_tokens=options.tokens),
        prices=options.price,
    )


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def every_agent() -> list[str]:
    """Return direct, then every built-in agent for one player that needs no option."""
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
    from palaestra.models.local import weights
    from palaestra.models.registry import renderer_of

    return renderer_of(weights.prepare(COUNTER, lambda sentence: None))
