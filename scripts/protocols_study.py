"""Measures protocols of teams with a language model.

    python scripts/protocols_study.py FOLDER ENVIRONMENT … [--model qwen2.5-coder-1.5b] [--tasks 64]

Every member is the same model. Beside each protocol stand the tokens that it read and sampled, so
that it can be compared with others that spend as many; how often the decision was not the first
proposal (a discussion may drift away from it); and the share of words of who said most. FOLDER
holds the runs; those that are there already are not run again. A majority of seven spends about as
many tokens as a debate: with equal tokens it is the one to beat.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean

import palaestra as pa
from palaestra.core.episode import Episode
from palaestra.environments.teams.votes import plain
from palaestra.evaluation.statistics.conversation import conversation
from palaestra.evaluation.statistics.intervals import wilson

ALONE, SEVEN = "one alone", "majority of seven"
PROTOCOLS = (ALONE, "majority", "debate", "review", "select", SEVEN)
HEAD = "| protocol | success, 95 % | sampled tokens | read | decided otherwise | largest share |"


def changed(episode: Episode) -> bool:
    """Return whether a team decided on something else than its first proposal."""
    notes = [(step.action.text, step.transition.info.get("team", {})) for step in episode.steps]
    proposals = [text for text, note in notes if note.get("does") == "propose"]
    decisions = [note["did"] for _, note in notes if "did" in note]
    return bool(proposals and decisions) and plain(proposals[0]) != plain(decisions[0])


def largest_share(episode: Episode) -> float:
    """Return the share of words of the member that said most; 0 where nobody said anything."""
    return max((one.share or 0.0 for one in conversation(episode).members.values()), default=0.0)


def team(protocol: str, folder: Path) -> str:
    """Return the name or the file of a team; write the file where it is not there yet."""
    if protocol != SEVEN:
        return protocol
    file = folder / "majority-of-seven.toml"
    members = "".join(f"[members.m{number}]\n" for number in range(1, 8))
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(f'see = "own"\n{members}[[stage]]\ndo = "propose"\n[[stage]]\ndo = "count"\n')
    return str(file)


def run(protocol: str, environment: str, options: argparse.Namespace) -> list[Episode]:
    """Return the episodes of a protocol in an environment."""
    folder = options.folder / f"{protocol} {environment}".translate(str.maketrans(" /", "--"))
    if folder.exists():
        return list(pa.Run(folder).resume(progress=False).results.episodes)
    results = pa.evaluate(
        environment,
        model=options.model,
        n=options.tasks,
        max_tokens=options.max_tokens,
        temperature=0.7,
        run=folder,
        progress=False,
        team="" if protocol == ALONE else team(protocol, options.folder),
    )
    return list(results.episodes)


def line(protocol: str, options: argparse.Namespace) -> str:
    """Return a protocol's row of the table."""
    episodes = [one for env in options.environments for one in run(protocol, env, options)]
    solved = sum(episode.outcome.solved for episode in episodes)
    success = wilson(solved, len(episodes))
    return (
        f"| {protocol} | {solved / len(episodes):.2f} ({success.low:.2f} to {success.high:.2f}) | "
        f"{fmean(e.usage.sampled_tokens for e in episodes):.0f} | "
        f"{fmean(e.usage.prompt_tokens for e in episodes):.0f} | "
        f"{fmean(map(changed, episodes)):.2f} | {fmean(map(largest_share, episodes)):.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("environments", nargs="+")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--tasks", type=int, default=64, help="of each environment")
    parser.add_argument("--max-tokens", type=int, default=24)
    options = parser.parse_args()
    print(HEAD, "| --- | --- | --- | --- | --- | --- |", sep="\n", flush=True)
    for protocol in PROTOCOLS:
        print(line(protocol, options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
