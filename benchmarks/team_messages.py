"""What a message of a team costs, in processor time: ours, recorded and durable, against peers.

A team of 4, 16 or 64 members talks in turn; each message is a reply of a scripted model. Ours are
committed to the run's database before the next member speaks; the peers (AutoGen's round-robin
group chat, AgentScope's message hub, a ring of LangGraph's agents) record nothing. One team alone,
and sixteen at once, which share commits:
    python benchmarks/team_messages.py [--json] [--rounds N] [--no-peer]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from measuring import Peer, Result, alternate, run

from palaestra.agents.players import PlayersAgent
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Environment,
    Observation,
    Transition,
)
from palaestra.core.episode import Key
from palaestra.core.task import Task
from palaestra.environments.teams.team_environment import InTeam
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.run_folder import RunFolder, default_root

SIZES = ((4, 50), (4, 1000), (16, 1000), (64, 1000))  # members, messages
GOAL = 0.15  # milliseconds of processor time per message
AT_ONCE = 16  # teams
SAYS = "I looked to the left, and there is nothing."


class Framework(NamedTuple):
    """A peer whose agents talk in turn."""

    place: str  # its environment
    requirements: tuple[str, ...]
    script: str
    goal: float | None  # messages per second, ours over theirs


PEERS = {
    "AutoGen": Framework(
        "overhead-autogen",
        ("autogen-agentchat==0.7.5", "autogen-ext==0.7.5"),
        "autogen_group.py",
        5.0,
    ),
    "AgentScope": Framework(
        "agentscope",
        ("agentscope==1.0.21", "mcp==1.30.0", "greenlet==3.5.6", "tqdm==4.70.1"),  # which it needs
        "agentscope_group.py",
        None,
    ),
    "LangGraph": Framework(
        "overhead-langgraph", ("langgraph==1.2.22",), "langgraph_group.py", None
    ),
}


class Silent(Environment):
    """What the team would act in, once."""

    instructions = "Say anything."

    def reset(self, task: Task) -> Observation:
        return Observation("Go on.")

    def step(self, action: Action) -> Transition:
        return Transition(Observation("ok"), terminated=True, success=True)


def team_file(folder: Path, members: int, messages: int, see: str) -> Path:
    """Write a team that talks in turn and sees what `see` says; return its file."""
    rounds = -(-messages // members)
    stages = [
        f'[[stage]]\ndo = "talk"\norder = "file"\ntimes = {min(100, rounds - done)}\n'
        for done in range(0, rounds, 100)
    ]
    stages.append('[[stage]]\ndo = "act"\nwho = ["m0"]\n')
    names = "".join(f"[members.m{number}]\n" for number in range(members))
    file = folder / f"team-{members}-{messages}.toml"
    file.write_text(f'see = "{see}"\n{names}{"".join(stages)}')
    return file


def ours(members: int, messages: int, teams: int = 1, see: str = "all") -> float:
    """Return milliseconds of processor time per message."""
    default_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="messages-", dir=default_root()) as name:
        folder = Path(name)
        file = str(team_file(folder, members, messages, see))

        async def made(environment: str) -> AsyncEnvironment:
            return LocalEnvironment(InTeam(Silent(), file))

        kept = RunFolder.create(folder / "run", {})
        rollout = Rollout(
            agent=PlayersAgent(),
            make_environment=made,
            models={"agent": ScriptedModel(lambda messages: SAYS)},
            concurrency=teams,
            store=kept.database,
        )
        jobs = [Job(Key("bench", n), Task(f"test/{n}", "silent", n)) for n in range(teams)]
        gc.collect()
        started = time.process_time()
        episodes = asyncio.run(rollout.run(jobs))
        kept.close()
        seconds = time.process_time() - started
    sent = sum(len(episode.steps) - 1 for episode in episodes)
    assert sent >= messages * teams, (sent, messages, teams)
    return 1e3 * seconds / sent


def alone(rounds: int) -> list[Result]:
    """Return our cost at each size, and how flat it is."""
    ours(4, 50)  # warm up
    found: dict[tuple[int, int, int], list[float]] = {}
    for _ in range(rounds):
        for size in (
            (*SIZES[0], 1),
            (*SIZES[1], 1),
            (*SIZES[2], 1),
            (*SIZES[3], 1),
            (16, 100, AT_ONCE),
        ):
            found.setdefault(size, []).append(ours(*size))
    results = []
    for (members, messages, teams), costs in found.items():
        many = "" if teams == 1 else f", {teams} teams at once"
        results.append(
            Result(
                f"a message of a team of {members}, {messages:,} messages{many}, against {GOAL} ms",
                ratio=GOAL / statistics.median(costs),
                goal=1.0,
                low=GOAL / max(costs),
                high=GOAL / min(costs),
                figures={"milliseconds_per_message": statistics.median(costs)},
            )
        )
    few, most = (statistics.median(found[*size, 1]) for size in (SIZES[1], SIZES[3]))
    results.append(
        Result(
            "a message, cost among 4 over that among 64", few / most, 0.8, few / most, few / most
        )
    )
    return results


def against(name: str, rounds: int) -> list[Result]:
    """Return messages per second of processor time, ours over those of the peer of that name."""
    results, framework = [], PEERS[name]
    script = f"benchmarks/peers/{framework.script}"
    with Peer(framework.place, framework.requirements, script) as peer:

        def theirs(members: int, messages: int) -> float:
            answer = peer.ask({"members": members, "messages": messages})
            return messages / float(answer["seconds"])

        theirs(4, 8)  # warm up
        for members, messages in ((4, 200), (16, 200)):
            found = alternate(
                lambda m=members, n=messages: 1e3 / ours(m, n),  # type: ignore[misc]
                lambda m=members, n=messages: theirs(m, n),  # type: ignore[misc]
                rounds,
            )
            results.append(
                Result(
                    f"messages of a team of {members}, {messages} of them, against {name}",
                    found.ratio, framework.goal, found.low, found.high,
                    figures={
                        "our_milliseconds_per_message": 1e3 / found.ours,
                        "their_milliseconds_per_message": 1e3 / found.theirs,
                    },
                )
            )  # fmt: skip
    return results


def measure(options: argparse.Namespace) -> Sequence[Result]:
    """Return all results."""
    results = alone(options.rounds)
    for name in () if options.no_peer else PEERS:
        results += against(name, options.rounds)
    return results


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true", help="measure ours only")


if __name__ == "__main__":
    run(__doc__, measure, add_options)
