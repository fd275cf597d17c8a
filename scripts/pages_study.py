"""What an agent reads of pages, and what it may forget: the study of docs/results/web.md.

    python scripts/pages_study.py walk FILE [--tasks N]        # needs the browser and the sites
    python scripts/pages_study.py fit FILE                     # of walks with --split train
    python scripts/pages_study.py views FILE [--embeddings]
    python scripts/pages_study.py notes FILE
    python scripts/pages_study.py replays FILE

`walk` follows the references of held-out tasks in the real browser and stores all pages on the way
(`page_walks.py`). `fit` prints the weights of the trained ranker. The others go over these pages
with variants of the agent `occam`, without a browser, and a model that reads by rule
(`page_readers.py`): a follower, which gives the reference's gesture if its prompt shows what that
needs, so that its success is the most that a model could reach that reads perfectly.

`views` toggles each adapter. `notes` has the chores by tag, with and without a notepad.
`replays` has the hops with and without a solved episode of the same kind in the prompt: there the
model is an imitator, which knows of the task only what the exemplar shows.
Tokens are those of SmolLM2, per step, of the whole prompt.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from page_readers import Imitator, Result, counter, follow, has_id, plain, run, says, values
from page_walks import GROUPS, LONGEST, Walked, Walkway, target_of, walk

from palaestra.agents.line_ranking import FEATURES, features
from palaestra.agents.occam import OccamAgent
from palaestra.agents.registry import make_agent
from palaestra.core.element_compaction import merged, with_tables
from palaestra.core.element_text import tree
from palaestra.core.gestures.gesture_line import read_line
from palaestra.core.task import Split
from palaestra.evaluation.statistics.intervals import wilson

OCCAM = {"observation": "tree,merged,tables", "gestures": "click,type,select,go,back"}
PLAIN = "steps=12&plans=false&notes=false&pivotal=false"


def row(name: str, found: Sequence[Result]) -> str:
    interval = wilson(sum(one.solved for one in found), len(found))
    tokens = [count for one in found for count in one.tokens]
    lacked = [one.lacked for one in found]
    reasons = " | ".join(str(lacked.count(what)) for what in ("target", "value", "evidence"))
    shares = (mean(one.solved for one in found), interval.low, interval.high)
    rate = "{:.0f} [{:.0f}, {:.0f}]".format(*(100 * share for share in shares))
    return f"| {name} | {mean(tokens):,.0f} | {max(tokens):,} | {rate} | {reasons} |"


def table(
    title: str, rows: Sequence[tuple[str, str, dict[str, str]]], walks: Sequence[Walked]
) -> None:
    """Print what each variant needs and reaches; a variant is a name, an agent, and knobs."""
    print(
        f"\n{title}: {len(walks)} tasks, {mean(len(one.pages) for one in walks):.1f} steps each\n"
    )
    print("| variant | tokens a step | most | success, % | no target | no value | no evidence |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for name, agent, knobs in rows:
        print(row(name, [follow(one, occam(agent), knobs) for one in walks]), flush=True)


def views(walks: Sequence[Walked], embeddings: bool) -> None:
    """Print the effect of each adapter, on sites and on MiniWoB."""
    page = OCCAM["observation"]
    rows: list[tuple[str, str, dict[str, str]]] = [
        ("none of them", f"occam?{PLAIN}", {"observation": "tree"}),
        ("occam", "occam", OCCAM),
        ("without merged texts", "occam", OCCAM | {"observation": "tree,tables"}),
        ("without tables as Markdown", "occam", OCCAM | {"observation": "tree,merged"}),
        ("with all gestures", "occam", {"observation": page}),
        ("whole pages in the history", "occam?pivotal=false", OCCAM),
        ("without notes", "occam?notes=false", OCCAM),
        ("without plans", "occam?plans=false", OCCAM),
        ("words without the tree", "occam", OCCAM | {"observation": "text,merged,tables"}),
        ("only what is new", "occam", OCCAM | {"observation": "changes,merged,tables"}),
    ]
    by = ("words", "trained", *(("embeddings", "both") if embeddings else ()))
    rows += [
        (f"the best {top} lines by {name}", f"occam?ranked={name}&top={top}", OCCAM)
        for name in by
        for top in (40, 20, 10)
    ]
    for group in ("sites", "miniwob"):
        table(group, rows, [one for one in walks if one.id in GROUPS[group]])


def fit(walks: Sequence[Walked]) -> None:
    """Print the weights of `agents/line_ranking.py`, fitted to these walks.

    Right lines of a page are that of the gesture's target, and those with values used later. The
    log-likelihood of the right lines among all of the page is maximised, less 0.01 |weights|^2.
    """
    import torch

    pages: list[tuple[torch.Tensor, torch.Tensor]] = []
    for walked in walks:
        query, known = f"{walked.goal}\nsolve the task", plain(walked.goal)
        later = [read_line(page.gesture) for page in walked.pages]
        for index, page in enumerate(walked.pages):
            lines = [line.strip() for line in tree(merged(with_tables(page.elements))).split("\n")]
            target = target_of(later[index], page.elements)
            used = [part for one in later[index:] for part in values(one, known, [page])[0]]
            right = [
                (target is not None and has_id(line, target.id))
                or any(says(plain(line), part) for part in used)
                for line in lines
            ]
            if any(right) and not all(right):
                pages.append((torch.tensor(features(query, lines)), torch.tensor(right)))
    weights = torch.zeros(len(FEATURES), requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        each = [
            torch.logsumexp(rated, 0) - torch.logsumexp(rated[right], 0)
            for rated, right in ((x @ weights, right) for x, right in pages)
        ]
        found = torch.stack(each).mean() + 0.01 * weights.square().sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    first = float(loss().detach())
    optimiser.step(loss)
    print(f"{len(pages)} pages, loss {first:.2f} -> {float(loss().detach()):.2f}")
    print(tuple(round(float(weight), 2) for weight in weights.detach()))


def notes(walks: Sequence[Walked]) -> None:
    """Print the chores with and without a notepad, by tag."""
    bare = "notes=false&plans=false&pivotal=false"
    rows: list[tuple[str, str, dict[str, str]]] = [
        ("notes", "occam?plans=false", OCCAM),
        ("no notes", "occam?plans=false&notes=false", OCCAM),
        *((f"no notes, the last {k} pages whole", f"occam?{bare}&steps={k}", OCCAM)
          for k in (4, 12, LONGEST)),
    ]  # fmt: skip
    for id in GROUPS["chores"]:
        table(id, rows, [one for one in walks if one.id == id])


def replays(walks: Sequence[Walked]) -> None:
    """Print the hops with and without a solved episode of a like task in the prompt."""
    walks = [one for one in walks if one.id in GROUPS["hops"]]
    half = max(one.number for one in walks) // 2
    earlier = [one for one in walks if one.number <= half]
    later = [one for one in walks if one.number > half]
    print(f"\n{len(earlier)} earlier episodes, {len(later)} tasks\n")
    print("| earlier episodes in the prompt | tokens a step | success, % | done of the way, % |")
    print("| --- | ---: | --- | ---: |")
    with TemporaryDirectory() as folder:
        shelf = Path(folder) / "shelf"
        for one in earlier:
            follow(one, occam(f"occam?replays=1&shelf={shelf}"), OCCAM)
        kept = shelf.read_bytes()
        for name, agent in (("none", "occam"), ("one", f"occam?replays=1&shelf={shelf}")):
            found = []
            for one in later:
                shelf.write_bytes(kept)  # no task sees another one of its half
                way = Walkway(one)
                found.append(run(way, occam(agent), OCCAM, Imitator(way, counter())))
            cells = row(name, found).split(" | ")
            done = 100 * mean(one.done for one in found)
            print(" | ".join([cells[0], cells[1], cells[3], f"{done:.0f} |"]), flush=True)


def occam(name: str) -> OccamAgent:
    made = make_agent(name)
    assert isinstance(made, OccamAgent)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("walk", "fit", "views", "notes", "replays"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--tasks", type=int, default=8, help="of each environment (8)")
    parser.add_argument("--split", type=Split, default=Split.TEST, choices=list(Split))
    parser.add_argument("--embeddings", action="store_true", help="rank by MiniLM, too")
    options = parser.parse_args()
    if options.part == "walk":
        ids = [id for group in GROUPS.values() for id in group]
        found = []
        for id in ids:
            more = 4 if id == "miniwob/basic" else 1
            walks = [walk(id, number, options.split) for number in range(more * options.tasks)]
            found += [one for one in walks if one is not None]
            print(f"{id}: {sum(one is not None for one in walks)} of {len(walks)}", flush=True)
        options.file.write_bytes(pickle.dumps(found))
        return
    walks = pickle.loads(options.file.read_bytes())
    match options.part:
        case "views":
            views(walks, options.embeddings)
        case "fit":
            fit(walks)
        case "notes":
            notes(walks)
        case "replays":
            replays(walks)


if __name__ == "__main__":
    main()
