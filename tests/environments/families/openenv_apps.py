"""Small OpenEnv environments, written with the package's own classes, for tests."""

import json
import os
import random
import sys
import time
from typing import Any, Literal

from fastapi import FastAPI, WebSocket
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

SIZE = 4


class Walk(Action):
    """Walk in one direction."""

    direction: Literal["north", "south", "east", "west"]
    steps: int = Field(default=1, ge=1, le=3)
    loud: bool = False


class Place(Observation):
    """Where one is."""

    x: int
    y: int
    hint: str = ""
    found: bool = False


class Grid(Environment):
    """A square with a treasure in it; each step costs a tenth."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self.goal = self.here = (0, 0)
        self.size = SIZE

    def reset(self, seed: int | None = None, size: int = SIZE, **others: Any) -> Place:
        rng = random.Random(seed)
        self.size, self.here = size, (0, 0)
        self.goal = (rng.randrange(1, size), rng.randrange(1, size))
        self._state = State(episode_id="grid", step_count=0)
        return self.seen()

    def step(self, action: Walk, **others: Any) -> Place:
        self._state.step_count += 1
        x, y = self.here
        away = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
        right, up = away[action.direction]
        most = self.size - 1
        self.here = (
            min(most, max(0, x + right * action.steps)),
            min(most, max(0, y + up * action.steps)),
        )
        return self.seen(loud=action.loud)

    def seen(self, loud: bool = False) -> Place:
        found = self.here == self.goal
        ahead = "warm" if abs(self.here[0] - self.goal[0]) <= 1 else "cold"
        hint = ahead.upper() if loud else ahead
        steps = self._state.step_count
        reward = None if not steps else 1.0 if found else -0.1
        over = found or steps >= 12
        return Place(
            x=self.here[0], y=self.here[1], hint=hint, found=found, done=over, reward=reward
        )

    @property
    def state(self) -> State:
        return self._state


class Guess(Action):
    """Guess the number."""

    number: int = Field(ge=0, le=99)


class Answer(Observation):
    """Whether it was too low or too high."""

    answer: str


class Guessing(Environment):
    """A number between 0 and 99."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self.number = 0

    def reset(self, seed: int | None = None, **others: Any) -> Answer:
        self.number = random.Random(seed).randrange(100)
        self._state = State(step_count=0)
        return Answer(answer="Guess!")

    def step(self, action: Guess, **others: Any) -> Answer:
        self._state.step_count += 1
        right = action.number == self.number
        words = "right" if right else "too low" if action.number < self.number else "too high"
        return Answer(answer=words, done=right, reward=float(right))

    @property
    def state(self) -> State:
        return self._state


class Till(MCPEnvironment):
    """A till, used by tools: an environment in OpenEnv's way for MCP."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self.sum = 0
        server = FastMCP("till")

        @server.tool
        def put(coins: int) -> str:
            """Put coins into the till."""
            self.sum += coins
            return f"{self.sum} in the till"

        @server.tool
        def count() -> int:
            """How many coins there are."""
            return self.sum

        super().__init__(server)
        self._state = State()

    def reset(self, seed: int | None = None, **others: Any) -> Observation:
        self.sum = (seed or 0) % 7
        self._state = State(step_count=0)
        return Observation(metadata={"note": "open"})

    def _step_impl(self, action: Action, **others: Any) -> Observation:
        raise ValueError("there are only tools here")

    def _paid(self, seen: Observation) -> Observation:
        self._state.step_count += 1
        seen.done, seen.reward = self.sum >= 10, float(self.sum >= 10)
        return seen

    def step(self, action: Action, **others: Any) -> Observation:
        return self._paid(super().step(action, **others))

    async def step_async(self, action: Action, **others: Any) -> Observation:
        seen = await super().step_async(action, **others)
        return self._paid(seen) if isinstance(action, CallToolAction) else seen

    @property
    def state(self) -> State:
        return self._state


class Order(Action):
    """An order."""

    order: str


class Report(Observation):
    """What came of it."""

    report: str


class Odd(Environment):
    """Does what is asked of it, also the worst."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, broken: bool = False, **others: Any) -> Report:
        if broken:
            raise RuntimeError("this task cannot begin")
        return Report(report="Speak!")

    def step(self, action: Order, **others: Any) -> Report:
        match action.order:
            case "die":
                print("I am about to die", file=sys.stderr, flush=True)
                os._exit(3)
            case "sleep":
                time.sleep(60)
            case "fail":
                raise RuntimeError("no such order")
            case "pay":
                return Report(report=str(os.getpid()), reward=0.5)
        return Report(report=action.order, reward=True)

    @property
    def state(self) -> State:
        return self._state


def served(world: type[Environment], action: type[Action], seen: type[Observation]) -> FastAPI:
    """The app of an environment, as OpenEnv's template makes it."""
    return create_fastapi_app(world, action, seen, max_concurrent_envs=8)


grid = served(Grid, Walk, Place)
guessing = served(Guessing, Guess, Answer)
till = served(Till, CallToolAction, CallToolObservation)
odd = served(Odd, Order, Report)

rubbish = FastAPI()
"""Something that listens where an OpenEnv server would, and answers with what its path says."""


@rubbish.get("/schema")
def schema() -> dict[str, Any]:
    """The schema of `Order`."""
    return {"action": Order.model_json_schema()}


@rubbish.websocket("/ws")
async def talk(socket: WebSocket) -> None:
    """Answer a reset as one should, and a step with the step itself."""
    await socket.accept()
    while True:
        asked = json.loads(await socket.receive_text())
        if asked["type"] == "reset":
            await socket.send_json({"type": "observation", "data": {"observation": {"a": "b"}}})
        elif asked["type"] == "step":
            await socket.send_text(asked["data"]["order"])
        else:
            break
    await socket.close()


everything = FastAPI()
"""All of them behind one port: a start takes seconds."""

for _name, _app in (("grid", grid), ("guessing", guessing), ("till", till), ("odd", odd)):
    everything.mount(f"/{_name}", _app)
everything.mount("/rubbish", rubbish)
