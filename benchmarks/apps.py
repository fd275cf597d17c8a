"""What a world of apps costs, and its steps per second beside τ²-bench, AgentDojo and ARE.

The world itself: opening and forking a medium one (8,000 rows), keeping its key at each write, its
calls, the memory of 1,000 small worlds in one process, and calls over MCP and HTTP through the
gateway, of which only the serving process counts. Then steps with a state key after each: the
reference solutions of apps/medium, those of all domains of τ² and all suites of AgentDojo (through
palaestra, in an environment with their packages), and calls of ARE's own tools in a world of the
same size. All times are processor times of one process, so that a machine with other work gives
the same figures:
    python benchmarks/apps.py [--json] [--rounds N] [--seconds S] [WHAT …]
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psutil
import reference_steps
from measuring import Peer, Result, alternate, run
from peer import PeerUnavailable
from provenance import ROOT

from palaestra.core.budget import Budget
from palaestra.core.episode import Key
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.drawing import drawn
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.stock import stock_suite
from palaestra.environments.families.apps.world import World
from palaestra.gateway.gateway import Gateway
from palaestra.gateway.program_agents import GatewayAgent
from palaestra.gateway.session_endpoint import SessionEndpoint
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

OURS = "apps/medium"
FAMILIES = {
    "tau2": ("tau2/airline", "tau2/retail", "tau2/telecom"),
    "agentdojo": tuple(
        f"agentdojo/{suite}" for suite in ("banking", "slack", "travel", "workspace")
    ),
}
NAMES = {"tau2": "τ²-bench", "agentdojo": "AgentDojo", "are": "ARE"}
ARE = "meta-agents-research-environments==1.2.0"
SAME_SIZE = {"people": 14, "messages": 50, "events": 12}  # as a small world of ours
TASKS = 10  # of each domain
FASTER = 5.0  # the goal: so many times their steps per second
WORLDS = 1000
MEMORY = 1e9  # bytes
OPEN, FORK, KEY, CALL = 3e-3, 1e-3, 50e-6, 0.3e-3  # seconds
SERVED = {"MCP": 400.0, "HTTP": 800.0}  # calls per second
CALLS, CLIENTS = 600, 2  # over the gateway, in a round


class Family(Peer):
    """A family's packages, on top of this environment, in which nothing changes."""

    def __init__(self, family: str) -> None:
        listed = (ROOT / "requirements" / f"{family}.txt").read_text().splitlines()
        pins = [line for line in listed if "==" in line and not line.startswith("#")]
        environment = {"PYTHONPATH": str(ROOT / "src")}
        script = "benchmarks/reference_steps.py"
        super().__init__(family, pins, script, environment=environment)

    def _install(self) -> None:
        if self._unmet() == []:
            return
        self._run([sys.executable, "-m", "venv", "--clear", str(self.folder)])
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        mine, own = (
            subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
            for python in (sys.executable, str(self.python))
        )
        with open(f"{own.stdout.strip()}/zz-palaestra.pth", "w") as link:
            link.write(mine.stdout)  # behind what it has itself
        self._pip("install", "--no-deps", *self.requirements)
        if self._unmet() != []:
            raise PeerUnavailable(f"'{self.name}' does not hold what was installed")


def within(name: str, limit: float, measured: Callable[[], float], rounds: int) -> Result:
    """A row for seconds or bytes that are to stay within a limit."""
    found = [measured() for _ in range(rounds)]
    kind, scale = ("MB", 1e-6) if limit == MEMORY else ("µs", 1e6)
    return Result(
        name=name,
        ratio=limit / statistics.median(found),
        goal=1.0,
        low=limit / max(found),
        high=limit / min(found),
        figures={kind: scale * statistics.median(found), f"limit {kind}": scale * limit},
    )


def timed(work: Callable[[], object], times: int) -> float:
    """Seconds of processor time, the median of so many."""
    found = []
    for _ in range(times):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return statistics.median(found)


def medium() -> World:
    return World(stock_suite(), world_template(stock_suite(), "medium", 0), START)


def opened() -> float:
    return timed(lambda: medium().close(), 50)


def forked() -> float:
    world = medium()
    return timed(lambda: world.fork().close(), 50)


class Keyless(State):
    """A state that keeps neither key nor log."""

    def _note(self, table: str, id: int, before: Row | None, after: Row | None) -> None:
        pass


def key_kept() -> float:
    """What the key and the log add to a write: an insertion, a change, a deletion of a letter."""
    template = world_template(stock_suite(), "medium", 0)
    letter = State(template).get("mail.message", 7)
    assert letter is not None
    values = {name: value for name, value in letter.items() if name != "id"}

    def written(state: State) -> float:
        started = time.process_time()
        for _ in range(500):
            id = state.insert("mail.message", values)
            state.update("mail.message", id, {"subject": "Rent"})
            state.delete("mail.message", id)
        return (time.process_time() - started) / 1500

    pairs = [(written(State(template)), written(Keyless(template))) for _ in range(5)]
    return statistics.median(kept - bare for kept, bare in pairs)


def call_made() -> float:
    """The median of calls with an access token: reads, searches, changes, refusals."""
    world, found = medium(), []
    tokens = {}
    listed = world.call("supervisor.list_credentials", {"per_page": 20}, MAIN).body
    for row in listed["credentials"]:
        known = {name: row[name] for name in ("username", "password")}
        reply = world.call(f"{row['app']}.login", known)
        tokens[row["app"]] = reply.body["access_token"]
    letter = world.call("mail.list_messages", {}, MAIN).body["messages"][0]
    other = world.state.get("supervisor.person", 2)
    assert other is not None
    to = {"recipient": other["email"], "subject": "Hello", "body": "See you soon."}
    event = {"title": "Tea", "start": "2026-03-20 10:00", "end": "2026-03-20 11:00"}
    calls: list[tuple[str, Mapping[str, Any]]] = [
        ("mail.show_message", {"message_id": letter["id"]}),
        ("mail.list_messages", {"per_page": 5}),
        ("mail.search_messages", {"query": "rent"}),
        ("mail.send_message", to),
        ("mail.reply_message", {"message_id": letter["id"], "body": "Thank you."}),
        ("contacts.search_contacts", {"query": "an"}),
        ("contacts.create_contact", {"name": "Ada", "email": "ada@engine.example"}),
        ("contacts.show_contact", {"contact_id": 10**6}),
        ("calendar.list_events", {"per_page": 5}),
        ("calendar.create_event", event),
        ("bank.list_payments", {"per_page": 5}),
        ("bank.send_money", {"payee": other["email"], "amount": "much"}),
    ]
    for _ in range(20):
        for name, arguments in calls:
            given = {**arguments, "access_token": tokens[name.partition(".")[0]]}
            started = time.process_time()
            world.call(name, given)
            found.append(time.process_time() - started)
    return statistics.median(found)


def memory() -> float:
    """Bytes of a fresh process that has 1,000 worlds, of tasks, with one change in each."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return float(pool.apply(_with_worlds))


def _with_worlds() -> int:
    worlds = [drawn("easy", "", 3 * number).open() for number in range(WORLDS)]
    for world in worlds:
        arguments = {"name": "Ada", "email": "ada@engine.example"}
        assert world.call("contacts.create_contact", arguments, MAIN).ok
    return int(psutil.Process().memory_info().rss)


class Serving(GatewayAgent):
    """Serves a session to clients in a process of their own."""

    name = "serving"

    def __init__(self, kind: str) -> None:
        super().__init__(Gateway())
        self.kind, self.rate = kind, 0.0

    async def serve(self, endpoint: SessionEndpoint, address: str) -> None:
        context = multiprocessing.get_context("spawn")
        ready, go = context.Event(), context.Event()
        client = context.Process(
            target=_client, args=(self.kind, address, endpoint.token, ready, go), daemon=True
        )
        client.start()
        await asyncio.to_thread(ready.wait)
        before, started = len(endpoint.session.steps), time.process_time()
        go.set()
        await asyncio.to_thread(client.join)
        spent = time.process_time() - started
        made = len(endpoint.session.steps) - before
        assert (client.exitcode, made) == (0, CALLS), "the clients failed"
        self.rate = made / spent


def served(kind: str) -> float:
    """Calls per second of this process' time, three searches and a change, by two clients."""
    name = {"MCP": "easy:all", "HTTP": "easy:code"}[kind]
    task = Apps.tasks(f"apps/{name}").task(Split.TEST, 0)
    agent = Serving(kind)
    session = Session(
        Key("benchmark", 0),
        task,
        LocalEnvironment(Apps(name)),
        agent,
        {"agent": ScriptedModel([])},
        budget=Budget(turns=10 * CALLS),
    )
    asyncio.run(session.run())
    return agent.rate


def _client(kind: str, address: str, token: str, ready: Any, go: Any) -> None:
    """Sign in, and then make calls with two connections at once."""
    from concurrent.futures import ThreadPoolExecutor

    url = urlsplit(address)
    header = {"x-api-key": token, "Content-Type": "application/json"}

    def posted(line: http.client.HTTPConnection, path: str, body: object) -> Any:
        line.request("POST", f"{url.path}{path}", json.dumps(body), header)
        answer = line.getresponse()
        found = json.loads(answer.read())
        assert answer.status == 200, found
        return found

    def line() -> http.client.HTTPConnection:
        assert url.hostname is not None
        return http.client.HTTPConnection(url.hostname, url.port)

    if kind == "HTTP":
        first = line()
        listed = posted(first, "/apps/supervisor/list_credentials", {"per_page": 20})
        mine = next(row for row in listed["credentials"] if row["app"] == "contacts")
        known = {name: mine[name] for name in ("username", "password")}
        made = posted(first, "/apps/contacts/login", known)
        header["Authorization"] = f"Bearer {made['access_token']}"

    def calls(_: int) -> None:
        own = line()
        for number in range(CALLS // CLIENTS):
            name, arguments = "search_contacts", {"query": "an"}
            if number % 4 == 0:  # always the same row: an episode changes few
                name, arguments = "update_contact", {"contact_id": 1, "name": f"Ada {number}"}
            if kind == "HTTP":
                posted(own, f"/apps/contacts/{name}", arguments)
                continue
            params = {"name": f"contacts_{name}", "arguments": arguments}
            rpc = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            assert not posted(own, "/mcp", rpc)["result"]["isError"]

    with ThreadPoolExecutor(CLIENTS) as pool:
        ready.set()
        go.wait()
        list(pool.map(calls, range(CLIENTS)))


def over_gateway(kind: str, rounds: int) -> Result:
    found = [served(kind) for _ in range(rounds)]
    goal = SERVED[kind]
    return Result(
        name=f"calls over {kind}, of the server's processor time",
        ratio=statistics.median(found) / goal,
        goal=1.0,
        low=min(found) / goal,
        high=max(found) / goal,
        figures={"calls/s": statistics.median(found), "limit calls/s": goal},
    )


@contextmanager
def peer_rates(name: str, seconds: float) -> Iterator[Callable[[], float]]:
    """A measurement of a peer: the same number of steps in each of its domains."""
    with ExitStack() as stack:
        if name == "are":
            peer = stack.enter_context(Peer("are", [ARE], "benchmarks/peers/are_apps.py"))
            yield lambda: float(peer.ask({"seconds": seconds, **SAME_SIZE})["rate"])
            return
        family, ids = stack.enter_context(Family(name)), FAMILIES[name]

        def rate() -> float:
            asked = [{"id": id, "seconds": seconds / len(ids), "count": TASKS} for id in ids]
            return statistics.harmonic_mean(float(family.ask(one)["rate"]) for one in asked)

        yield rate


def steps(seconds: float, rounds: int, names: Sequence[str]) -> list[Result]:
    """Steps with keys beside each peer; every round has all of them."""
    rows = []
    with ExitStack() as stack:
        rates = {name: stack.enter_context(peer_rates(name, seconds)) for name in names}
        for name, theirs in rates.items():
            theirs()  # imports, and the solutions of its tasks
            reference_steps.rate(OURS, seconds / 5, TASKS)
            found = alternate(lambda: reference_steps.rate(OURS, seconds, TASKS), theirs, rounds)
            rows.append(
                Result(
                    name=f"steps with state keys: {OURS}, against {NAMES[name]}",
                    ratio=found.ratio,
                    goal=FASTER,
                    low=found.low,
                    high=found.high,
                    figures={"palaestra steps/s": found.ours, "peer steps/s": found.theirs},
                )
            )
    return rows


def measure(options: argparse.Namespace) -> list[Result]:
    wanted, rounds = options.what or [*WHAT, *NAMES], options.rounds
    alone = itertools.chain.from_iterable(WHAT[name](rounds) for name in wanted if name in WHAT)
    peers = [name for name in wanted if name in NAMES]
    return [*alone, *(steps(options.seconds, rounds, peers) if peers else ())]


WHAT: dict[str, Callable[[int], list[Result]]] = {
    "open": lambda rounds: [within("medium world opened", OPEN, opened, rounds)],
    "fork": lambda rounds: [within("medium world forked", FORK, forked, rounds)],
    "key": lambda rounds: [within("key and log kept, per write", KEY, key_kept, rounds)],
    "call": lambda rounds: [within("median call, with a token", CALL, call_made, rounds)],
    "memory": lambda rounds: [within("1,000 small worlds in one process", MEMORY, memory, 1)],
    "mcp": lambda rounds: [over_gateway("MCP", rounds)],
    "http": lambda rounds: [over_gateway("HTTP", rounds)],
}


def _options(parser: argparse.ArgumentParser) -> None:
    known = [*WHAT, *NAMES]
    parser.add_argument("what", nargs="*", metavar="WHAT", choices=[*known, []], help=f"of {known}")
    parser.add_argument("--rounds", type=int, default=5, help="of each (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of steps, a side and round (2)")


if __name__ == "__main__":
    run(__doc__, measure, _options)
