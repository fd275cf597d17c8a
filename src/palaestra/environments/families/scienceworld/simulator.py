"""ScienceWorld's simulator, one task at a time, in its own Java virtual machine.

The package's Python wrapper (`ScienceWorldEnv`) computes all valid actions after every step, which
advances the simulator's random number generator and takes most of the time. Here they are computed
on demand, and the generator's state is restored. Otherwise a step equals the wrapper's: the score
is in points from -100 to 100, rounded, and the task ends when it is completed or the score is
negative.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from scienceworld.constants import JAR_PATH

from palaestra.environments.shared.java_process import JavaProcess

MEGABYTES = 512  # heap size; some solutions briefly need more than 128
SIMPLIFICATIONS = ""  # the wrapper's default: none
UNKNOWN = "No known action matches that input."
QUESTION = "Ambiguous request"
SCRAMBLER = 0x5DEECE66D  # what java.util.Random applies to a seed; its documentation states it


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a command."""

    text: str
    score: int  # points so far; negative where the task has failed
    completed: bool = False

    @property
    def understood(self) -> bool:
        return self.text != UNKNOWN

    @property
    def asks(self) -> bool:
        """Whether the simulator asks for the number of the thing that was meant."""
        return self.text.startswith(QUESTION)

    @property
    def solved(self) -> bool:
        return self.completed and self.score == 100

    @property
    def over(self) -> bool:
        return self.completed or self.score < 0


class Simulator:
    """A running simulator, which plays variations of tasks."""

    def __init__(self) -> None:
        self._java = JavaProcess(JAR_PATH, MEGABYTES)
        self._server = self._java.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        # The simulator uses Scala's global generator, which the whole virtual machine shares.
        scala = self._java.jvm.java.lang.Class.forName("scala.util.Random$")
        self._rng = scala.getField("MODULE$").get(None)

    @property
    def alive(self) -> bool:
        return self._java.alive

    def close(self) -> None:
        self._java.close()

    def start(self, task: str, variation: int) -> Reply:
        """Load a task and look around, as the wrapper does."""
        self._load(task, variation, gold=False)
        return self.do("look around")

    def do(self, command: str) -> Reply:
        """Execute one command.

        Raises:
            RuntimeError: the simulator failed.
        """
        text = self._server.step(command)
        if self._inside.isInErrorState():
            raise RuntimeError(f"ScienceWorld failed: {self._inside.getErrorStateMessage()}")
        score = round(100 * self._server.getScore())
        return Reply(text, score, bool(self._server.getCompleted()))

    def withdraw(self) -> None:
        """Drop the open question; unlike a wrong answer, this takes no time."""
        self._inside.inputParser().clearAmbiguousState()

    def description(self) -> str:
        text: str = self._server.getTaskDescription()
        return text

    def moves(self) -> int:
        """Return the ticks of the simulator's clock so far."""
        return int(self._server.getNumMoves())

    def valid(self) -> list[str]:
        """Return the package's valid actions on visible, reachable things, sorted.

        The package also lists actions on the contents of closed containers. These would reveal the
        contents, and the simulator rejects them. No question may be open.
        """
        before = self._rng_state()
        listed = json.loads(self._server.getValidActionObjectCombinationsJSON())["validActions"]
        agent = self._inside.agent()
        near = self._near(agent.getContainer().get()) | self._near(agent)
        self._rng.setSeed(before ^ SCRAMBLER)
        return sorted({action["action"] for action in listed if near.issuperset(action["obj_ids"])})

    def gold(self, task: str, variation: int) -> list[str]:
        """Return the package's solution; call `start` afterwards."""
        self._load(task, variation, gold=True)
        return self._java.lines(self._server.getGoldActionSequence())

    def _load(self, task: str, variation: int, gold: bool) -> None:
        wrong = self._server.load(task, variation, SIMPLIFICATIONS, gold)
        if wrong:
            raise RuntimeError(f"ScienceWorld did not load {task} {variation}: {wrong}")
        self._inside: Any = self._server.agentInterface().get()

    def _near(self, place: Any) -> set[int]:
        """Return the numbers of the things that are visible from a place, including itself."""
        named = self._inside.inputParser().getAllUniqueReferentsLUT(place, False, False)
        return set(map(int, named.keySet().mkString(" ").split()))

    def _rng_state(self) -> int:
        """Read the generator's internal state from its serialised form."""
        buffer = self._java.jvm.java.io.ByteArrayOutputStream()
        stream = self._java.jvm.java.io.ObjectOutputStream(buffer)
        stream.writeObject(self._rng.self())
        stream.flush()
        return int.from_bytes(bytes(buffer.toByteArray())[-9:-1], "big")
