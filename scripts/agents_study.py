"""The study of docs/results/agents.md: agents in several environments at equal budgets per episode.

    python scripts/agents_study.py run FOLDER [--model MODEL] [--tasks N] [--agents A,B]
                                              [--worlds X,Y] [--seeds 1,2] [--weights W]
    python scripts/agents_study.py table FOLDER [--to docs/results/agents.md]

`table` keeps the text of that file from the line `## Findings` on.

`run` runs the missing cells: a run folder for each model, environment and agent, so that the study
can be stopped, resumed, and extended by agents or environments. Without --agents they are all that
need no option, plus the variants in AGENTS. Agents run the same tasks with the same seeds, one
episode at a time where they learn from earlier episodes. `table` writes the finished cells.

MODEL is `expert` (the default: the environment's oracle, with one action in five replaced by a
random one, so that the handling of errors can be measured), `smollm2` (SmolLM2-135M-Instruct,
untrained), `trained` (the same after training in one environment; --weights names its folder) or
`coder` (Qwen2.5-Coder-1.5B-Instruct, untrained; its packages are in `palaestra[coder]`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palaestra.cli.agents_command import every_agent
from palaestra.cli.agents_text import rows
from palaestra.cli.main import main as palaestra
from palaestra.evaluation.reports import cell_samples
from palaestra.evaluation.reports.leaderboard import build
from palaestra.store.run_folder import RunFolder

REMARKS = "## Findings\n"
STOPPED = 130  # exit code of a command that was interrupted
TOKENS = 8192  # read and sampled, per episode
INTRO = f"""# Agents side by side, at equal budgets

All agents run the same held-out tasks with the same seeds. An episode ends, at the latest, after
{TOKENS} tokens read and sampled (a new prompt costs all its tokens; one that continues a
conversation costs only the added tokens) or after the environment's default number of actions,
unless said otherwise. Success with its 95 % interval over tasks (Wilson), the difference to
`direct` paired by task (Newcombe); tokens, calls and turns are means per episode.

```
python scripts/agents_study.py run runs/agents --model expert
python scripts/agents_study.py run runs/agents --model smollm2
python scripts/agents_study.py run runs/agents --model trained --weights runs/trained
python scripts/agents_study.py run runs/agents --model coder
python scripts/agents_study.py table runs/agents --to docs/results/agents.md
```

The expert asks the environment's oracle for the action, and one in five of its actions is replaced
by a random one. It needs no memory, so a memory cannot help it: for memory agents the table shows
the cost, and the loss where the budget ends an episode. Planning, verification and search can
help, because they act on the errors. Agents that differ only in their prompts get the same random
errors and take the same actions. `rules`, `skills`, `profile` and `recall?across=true` learn from
the earlier tasks, in their order."""
AGENTS = ["direct?history=2", "summary?budget=1000", "sliding?window=2", "recall?across=true"]
WORLDS = [
    "babyai/GoToLocalS5N2",
    "babyai/PickupLoc",
    "textworld/coin-easy",
    "textworld/treasure-easy",
    "gymnasium/Taxi-v4",
    "gymnasium/CliffWalking-v1",
    "probe/memory-4",
    "probe/umbrella-8",
]


@dataclass(frozen=True)
class Limits:
    """The limits of one environment that differ from the study's."""

    turns: int
    tokens: int = TOKENS
    context: int | None = None


CODER_WORLDS = {
    "terminal/mixed": Limits(turns=5, tokens=2048),
    "textworld/coin-easy": Limits(turns=10, tokens=2048),
    "agentdojo/banking": Limits(turns=8, tokens=4096, context=4096),
    "bfcl/multi_turn_base": Limits(turns=20, tokens=6144, context=6144),
    "repository/mdurl": Limits(turns=8, tokens=4096, context=4096),
    "tau2/retail": Limits(turns=20, tokens=16384, context=16384),
}
CODER_AGENTS = ["direct", "react", "plan", "tools", "vote?samples=3&temperature=0.7", "refine"]
CODER_AGENTS += ["places"]


@dataclass(frozen=True)
class StudyModel:
    """A model of the study, and its default numbers of tasks, episodes at once and tokens."""

    name: str
    words: str
    tasks: int
    concurrency: int  # 1: agents that learn from episode to episode do so in the order of the tasks
    reply: int  # tokens
    temperature: float = 1.0
    limits: Mapping[str, Limits] = field(default_factory=dict)  # environments of this model alone
    agents: Sequence[str] = ()  # empty: all agents


MODELS = {
    "expert": StudyModel(
        "expert?error=0.2", "An expert that errs in one of five actions", 60, 1, 128
    ),
    "smollm2": StudyModel("smollm2-135m", "SmolLM2-135M-Instruct, untrained", 20, 8, 48),
    "trained": StudyModel(
        "runs/trained", "SmolLM2-135M-Instruct, trained in GoToLocalS5N2 as `direct`", 20, 8, 48
    ),
    "coder": StudyModel(
        "qwen2.5-coder-1.5b",
        "Qwen2.5-Coder-1.5B-Instruct, untrained",
        24,
        24,
        160,
        temperature=0.7,
        limits=CODER_WORLDS,
        agents=CODER_AGENTS,
    ),
}


def remarks(file: Path) -> str:
    """Return the hand-written text about the tables in the file."""
    _, head, rest = (file.read_text() if file.is_file() else "").partition(REMARKS)
    return f"\n{head}{rest}" if head else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    work = verbs.add_parser("run")
    work.add_argument("folder", type=Path)
    work.add_argument("--model", choices=MODELS, default="expert")
    work.add_argument("--tasks", type=int)
    work.add_argument("--agents")
    work.add_argument("--worlds")
    work.add_argument("--seeds", default="1")
    work.add_argument("--weights", help="of the model `trained`: a training run, or its weights")
    table = verbs.add_parser("table")
    table.add_argument("folder", type=Path)
    table.add_argument("--to", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        return run_missing(options)
    text = page(options.folder)
    options.to.write_text(text + remarks(options.to)) if options.to else print(text)
    return 0


def run_missing(options: argparse.Namespace) -> int:
    """Run the missing cells; return 1 if a cell failed."""
    model = MODELS[options.model]
    asked_model = options.weights if options.model == "trained" else model.name
    if asked_model is None:
        print("--model trained needs trained weights; pass --weights", file=sys.stderr)
        return 2
    agents = options.agents.split(",") if options.agents else model.agents
    agents = agents or [*every_agent(), *AGENTS]
    failed = 0
    for world in options.worlds.split(",") if options.worlds else model.limits or WORLDS:
        limits = model.limits.get(world)
        given = ["--tokens", str(limits.tokens if limits else TOKENS)]
        if limits is not None:
            given += ["--turns", str(limits.turns)]
            given += ["--context", str(limits.context)] if limits.context else []
        for agent in agents:
            folder = options.folder / options.model / plain(world) / plain(agent)
            folder.parent.mkdir(parents=True, exist_ok=True)
            asked = ["agents", "compare", world, "--agents", agent, "--model", asked_model]
            asked += [*given, "--max-tokens", str(model.reply), "--json"]
            asked += ["--temperature", str(model.temperature)]
            asked += ["--tasks", str(options.tasks or model.tasks), "--seeds", options.seeds]
            asked += ["--concurrency", str(model.concurrency), "--run", str(folder)]
            started = time.monotonic()
            with contextlib.redirect_stdout(io.StringIO()):
                code = palaestra(asked)
            if code == STOPPED:
                return STOPPED
            failed += code != 0
            seconds = time.monotonic() - started
            print(f"{world}, {agent}: {seconds:.1f} s{', failed' if code else ''}", flush=True)
    return min(failed, 1)


def plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def page(folder: Path) -> str:
    """Return the tables of all finished cells, in Markdown."""
    parts = [INTRO]
    for key, model in MODELS.items():
        found = sorted((folder / key).glob("*/*/run.json"))
        if found:
            parts += [f"## {model.words} (`{model.name}`)"]
            parts += [_limits(model, found)] if model.limits else []
            parts += _tables(found)
    return "\n\n".join(parts) + "\n"


def _limits(model: StudyModel, found: Sequence[Path]) -> str:
    """Return the limits of the environments that were run as a sentence."""
    run = {file.parent.parent.name for file in found}
    each = "; ".join(
        f"{world} {limits.turns} actions and {limits.tokens} tokens"
        for world, limits in model.limits.items()
        if plain(world) in run
    )
    return (
        f"At most, per episode: {each}. Replies of at most {model.reply} tokens at temperature "
        f"{model.temperature:g}."
    )


def _tables(found: Sequence[Path]) -> list[str]:
    parts: list[cell_samples.Part] = []
    calls: dict[tuple[str, str], list[int]] = {}  # by agent and world
    for run in (file.parent for file in found):
        of = cell_samples.read(run)
        parts += of
        with RunFolder.read(run) as opened:
            for part in of:
                episodes = opened.database.episodes(part.cell.phase)
                where = (part.cell.agent, part.cell.environment)
                made = [len(episode.calls) for episode in episodes if episode.outcome.scored]
                calls.setdefault(where, []).extend(made)
    board = build(parts)
    agents = list(dict.fromkeys(["direct", *sorted(c.agent for c in board.candidates)]))
    by_world = {
        world: {r["agent"]: r for r in rows(board, world, agents, calls)} for world in board.weights
    }
    return [_overview(by_world, agents), *(_world(world, of) for world, of in by_world.items())]


def _overview(by_world: dict[str, dict[str, Any]], agents: Sequence[str]) -> str:
    lines = ["| agent | " + " | ".join(by_world) + " | mean | tokens |"]
    lines.append("|" + " --- |" * (len(by_world) + 3))
    for agent in agents:
        of = [by_world[world].get(agent) for world in by_world]
        having = [row for row in of if row and row["success"]]
        cells = [_rate(row["success"]) if row and row["success"] else "–" for row in of]
        whole = len(having) == len(by_world)
        mean = sum(row["success"]["mean"] for row in having) / max(1, len(having))
        spent = sum(row["tokens"] for row in having) / max(1, len(having))
        cells += [f"{100 * mean:.0f}", f"{spent:.0f}"] if whole else ["–", "–"]
        lines.append(f"| {agent} | " + " | ".join(cells) + " |")
    tasks = sorted(
        {row["success"]["n"] for of in by_world.values() for row in of.values() if row["success"]}
    )
    count = " to ".join(str(n) for n in dict.fromkeys((tasks[0], tasks[-1])))
    return "\n".join(
        [f"Success in % with its 95 % interval, {count} tasks per environment.", "", *lines]
    )


def _world(world: str, of: dict[str, Any]) -> str:
    lines = [
        f"### {world}",
        "",
        "| agent | success % | against direct | progress % | turns | calls | tokens | faults |",
        "|" + " --- |" * 8,
    ]
    for agent, row in of.items():
        progress = "–" if row["progress"] is None else f"{100 * row['progress']:.0f}"
        numbers = [
            f"{row[name]:.1f}" if row[name] is not None else "–" for name in ("turns", "calls")
        ]
        tokens = "–" if row["tokens"] is None else f"{row['tokens']:.0f}"
        gap = _rate(row["difference"], "+") if row["difference"] else ""
        success = _rate(row["success"]) if row["success"] else "–"
        cells = [agent, success, gap, progress, *numbers, tokens, str(row["faults"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _rate(of: dict[str, float], sign: str = "") -> str:
    mean, low, high = (f"{100 * of[name]:{sign}.0f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


if __name__ == "__main__":
    sys.exit(main())
