"""ScienceWorld's own simulator, one task at a time, in a Java virtual machine of its own.

The package's Python wrapper (`ScienceWorldEnv`) asks for all valid actions after every step,
which throws the simulator's dice and takes most of the time. Here they are asked for when they
are wanted, and the dice are put back; apart from that, a step is the wrapper's: score in points
from -100 to 100, rounded, and an end where the task is completed or the score is negative.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from scienceworld.constants import JAR_PATH

from palaestra.environments.text.java_process import JavaProcess

MEGABYTES = 512  # for its objects: some solutions need more than 128 for a moment
SIMPLIFICATIONS = ""  # the wrapper's default: none
UNKNOWN = "No known action matches that input."
QUESTION = "Ambiguous request"
SCRAMBLER = 0x5DEECE66D  # what java.util.Random applies to a seed; its documentation states it


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command led to."""

    text: str
    score: int  # points so far; negative where the task has failed
    completed: bool = False

    @property
    def understood(self) -> bool:
        return self.text != UNKNOWN

    @property
    def asks(self) -> bool:
        """Whether the simulator wants to know, by its number, which of several was meant."""
        return self.text.startswith(QUESTION)

    @property
    def solved(self) -> bool:
        return self.completed and self.score == 100

    @property
    def over(self) -> bool:
        return self.completed or self.score < 0


class Simulator:
    """Plays variations of tasks."""

    def __init__(self) -> None:
        self._java = JavaProcess(JAR_PATH, MEGABYTES)
        self._server = self._java.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        # The simulator throws Scala's dice, which everything in one machine shares.
        scala = self._java.jvm.java.lang.Class.forName("scala.util.Random$")
        self._dice = scala.getField("MODULE$").get(None)

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
        """Give one command.

        Raises:
            RuntimeError: the simulator broke down over it.
        """
        text = self._server.step(command)
        if self._inside.isInErrorState():
            raise RuntimeError(f"ScienceWorld broke down: {self._inside.getErrorStateMessage()}")
        score = round(100 * self._server.getScore())
        return Reply(text, score, bool(self._server.getCompleted()))

    def withdraw(self) -> None:
        """Forget the question that is open; unlike a wrong answer this takes no time."""
        self._inside.inputParser().clearAmbiguousState()

    def description(self) -> str:
        text: str = self._server.getTaskDescription()
        return text

    def moves(self) -> int:
        """Ticks of the world's clock so far."""
        return int(self._server.getNumMoves())

    def valid(self) -> list[str]:
        """The package's valid actions on things that can be seen and reached, sorted.

        The package also lists those on what lies in closed containers, which would betray it, and
        which it then does not understand. There must be no open question.
        """
        before = self._thrown()
        listed = json.loads(self._server.getValidActionObjectCombinationsJSON())["validActions"]
        agent = self._inside.agent()
        near = self._near(agent.getContainer().get()) | self._near(agent)
        self._dice.setSeed(before ^ SCRAMBLER)
        return sorted({action["action"] for action in listed if near.issuperset(action["obj_ids"])})

    def gold(self, task: str, variation: int) -> list[str]:
        """The package's solution; another start is needed afterwards."""
        self._load(task, variation, gold=True)
        return self._java.lines(self._server.getGoldActionSequence())

    def _load(self, task: str, variation: int, gold: bool) -> None:
        wrong = self._server.load(task, variation, SIMPLIFICATIONS, gold)
        if wrong:
            raise RuntimeError(f"ScienceWorld did not load {task} {variation}: {wrong}")
        self._inside: Any = self._server.agentInterface().get()

    def _near(self, place: Any) -> set[int]:
        """The numbers of the things that can be seen from a place, with itself."""
        named = self._inside.inputParser().getAllUniqueReferentsLUT(place, False, False)
        return set(map(int, named.keySet().mkString(" ").split()))

    def _thrown(self) -> int:
        """The inner state of the dice, as it stands in their serialised form."""
        buffer = self._java.jvm.java.io.ByteArrayOutputStream()
        stream = self._java.jvm.java.io.ObjectOutputStream(buffer)
        stream.writeObject(self._dice.self())
        stream.flush()
        return int.from_bytes(bytes(buffer.toByteArray())[-9:-1], "big")
