"""BabyAI and MiniGrid, told in words.

The agent sees what minigrid's partial view (7 x 7 cells in front of it) holds, in
steps relative to itself and in the words of its own actions: "red ball 2 forward
1 left, wall 3 forward". It acts with one word. Ids: `babyai/GoToLocalS5N2` is
minigrid's `BabyAI-GoToLocalS5N2-v0`, `minigrid/Empty-5x5` its `MiniGrid-Empty-5x5-v0`.

Source: Chevalier-Boisvert et al. 2019 (BabyAI), 2023 (minigrid); the oracle is
minigrid's own BabyAI bot.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import pickle
import re
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pygame's and gymnasium's notices, none about us
    import gymnasium
    import minigrid
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX
    from minigrid.envs.babyai.core.verifier import SeqInstr
    from minigrid.utils.baby_ai_bot import BabyAIBot

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.task import Task, TaskSet
from palaestra.environments.pictures import png
from palaestra.environments.snapshots import opened, sealed
from palaestra.environments.way import Way

WORDS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
ALIASES = {
    "turn left": "left",
    "turn right": "right",
    "move forward": "forward",
    "go forward": "forward",
    "pick up": "pickup",
    "open": "toggle",
}
INSTRUCTIONS = (
    "You walk through a grid. Reply with one action: left, right, forward, pickup, drop, toggle."
)
UNSEEN = {"unseen", "empty", "wall", "floor", "agent"}
DOOR_STATES = {index: name for name, index in STATE_TO_IDX.items()}


class MiniGrid(Environment):
    """The MiniGrid levels."""

    capabilities = frozenset(
        {Capability.STATE_KEY, Capability.SNAPSHOT, Capability.ADMISSIBLE, Capability.PICTURE}
    )
    prefix: ClassVar[str] = "MiniGrid-"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        known = _registered(self.prefix)
        self._solved = self._over = False
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._env: Any = gymnasium.make(known[name], disable_env_checker=True).unwrapped

    @classmethod
    def names(cls) -> list[str]:
        return sorted(_registered(cls.prefix))

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS

    def reset(self, task: Task) -> Observation:
        with contextlib.redirect_stdout(io.StringIO()):  # rejected samples are printed
            view, _ = self._env.reset(seed=task.seed)
        self._solved = self._over = False
        return Observation(f"Mission: {self._env.mission}\n{self._tell(view)}")

    def step(self, action: Action) -> Transition:
        word = parse(action.text)
        if self._over:
            return Transition(Observation("It is over."), valid=False)
        if word is None:
            said = f"You can only reply with {', '.join(WORDS[:-1])}."
            return Transition(Observation(said), valid=False)
        view, reward, terminated, truncated, _ = self._env.step(WORDS.index(word))
        reward = float(reward)
        self._solved = bool(terminated) and reward > 0
        self._over = bool(terminated or truncated)
        return Transition(
            Observation(self._tell(view)),
            reward=reward,
            terminated=bool(terminated),
            truncated=bool(truncated) and not terminated,  # what ends on the last step has ended
            success=self._solved,
        )

    def close(self) -> None:
        self._env.close()

    def picture(self) -> bytes:
        """The 7 x 7 cells that the agent sees, which looks up: 112 x 112 pixels."""
        return png(self._env.get_pov_render(tile_size=16))

    def state_key(self) -> str:
        """The grid, the agent, what it carries and the mission; not the step count."""
        env = self._env
        carried = env.carrying.encode() if env.carrying else None
        digest = hashlib.blake2b(env.grid.encode().tobytes(), digest_size=12)
        place = (*map(int, env.agent_pos), int(env.agent_dir))
        digest.update(repr((place, carried, env.mission)).encode())
        return digest.hexdigest()

    def admissible(self) -> list[str]:
        """The action words; each may be said anywhere, though some change nothing there."""
        return list(WORDS[:-1])

    def snapshot(self) -> bytes:
        return sealed(
            self._id, minigrid.__version__, pickle.dumps((self._env, self._solved, self._over))
        )

    def restore(self, snapshot: bytes) -> None:
        """Only snapshots of one's own: they are pickles, which can run any code."""
        body = opened(snapshot, self._id, minigrid.__version__)
        self._env, self._solved, self._over = pickle.loads(body)

    @property
    def _id(self) -> str:
        return self.prefix + self.name

    @property
    def typical_turns(self) -> int:
        """Twice around the grid."""
        return 2 * int(self._env.width + self._env.height)

    def _tell(self, view: dict[str, Any]) -> str:
        return describe(view["image"], self._env.carrying)


class BabyAI(MiniGrid):
    """The BabyAI levels: missions in language, with the package's expert bot."""

    capabilities = MiniGrid.capabilities | {Capability.ORACLE, Capability.PROGRESS}
    prefix = "BabyAI-"

    @property
    def typical_turns(self) -> int:
        """Enough for the bot with a detour (its longest way in a 5 x 5 room takes 6 of 7)."""
        env = self._env
        one_room = max(5, 3 * env.room_size - 8)
        parts = 1 if self.name.startswith("GoTo") else 2  # other missions take two trips
        return int(one_room * env.num_rows * env.num_cols * parts)

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._way = Way()

    def reset(self, task: Task) -> Observation:
        self._way.forget()
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        self._way.taken(action.text)
        return super().step(action)

    def restore(self, snapshot: bytes) -> None:
        self._way.forget()
        super().restore(snapshot)

    def oracle(self) -> list[Action]:
        """The bot's way from here to the goal; empty where the bot finds none."""
        return [] if self._over else self._way.rest(self._found)

    def _found(self) -> list[str]:
        env = copy.deepcopy(self._env)
        env.max_steps += env.step_count  # the bot may need more steps than are left
        found = _bots_way(copy.deepcopy(env))
        if found or env.carrying is None:
            return found
        # most of its plans begin with empty hands, and fail an assertion where they are not
        return _bots_way(env, _lay_down(env))

    def progress(self) -> float:
        """Share of the mission's parts that are done."""
        if self._solved:
            return 1.0
        parts = _parts(self._env.instrs)
        return sum(parts) / len(parts)

    def state_key(self) -> str:
        done = "".join(str(int(part)) for part in _parts(self._env.instrs))
        return f"{super().state_key()}-{done}"


def _bots_way(env: Any, before: Sequence[int] = ()) -> list[str]:
    """The bot's actions to the goal, with those already made `before` it; empty without success."""
    actions = [WORDS[int(number)] for number in before]
    last = None
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            bot = BabyAIBot(env)
            while True:
                last = bot.replan(last)
                actions.append(WORDS[int(last)])
                _, reward, terminated, truncated, _ = env.step(last)
                if terminated or truncated:
                    return actions if reward > 0 else []
        except Exception:  # the bot asserts its way out of levels it cannot solve
            return []


def _lay_down(env: Any) -> list[int]:
    """Put down what is carried, on the first free side from the left; the actions made."""
    made: list[int] = []
    while env.carrying is not None and len(made) < 4:
        free = env.grid.get(*env.front_pos) is None
        made.append(int(env.actions.drop if free else env.actions.left))
        env.step(made[-1])
    return made


def parse(text: str) -> str | None:
    """The action word that `text` says, or None."""
    lines = text.strip().lower().splitlines()
    cleaned = re.sub(r"[^a-z ]", "", lines[0]).strip() if lines else ""
    cleaned = ALIASES.get(cleaned, cleaned)
    return cleaned if cleaned in WORDS else None


def describe(image: Any, carrying: Any) -> str:
    """Words for a partial view [width, height, (object, color, state)], agent at bottom centre."""
    width, height = image.shape[:2]
    centre = width // 2
    seen: list[tuple[int, str]] = []
    for x in range(width):
        for y in range(height):
            kind = IDX_TO_OBJECT[int(image[x, y, 0])]
            ahead, right = height - 1 - y, x - centre
            if kind in UNSEEN or (ahead == 0 and right == 0):
                continue
            name = f"{IDX_TO_COLOR[int(image[x, y, 1])]} {kind}"
            if kind == "door":
                name = f"{DOOR_STATES[int(image[x, y, 2])]} {name}"
            seen.append((ahead + abs(right), f"{name}{_where(ahead, right)}"))
    parts = [words for _, words in sorted(seen)]
    wall = _wall_ahead(image, centre)
    if wall is not None:
        parts.append(f"wall {wall} forward")
    if carrying is not None:
        parts.append(f"you carry a {carrying.color} {carrying.type}")
    return ", ".join(parts) or "nothing"


def _where(ahead: int, right: int) -> str:
    side = f" {abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    return (f" {ahead} forward" if ahead else "") + side


def _wall_ahead(image: Any, centre: int) -> int | None:
    height = image.shape[1]
    for y in range(height - 2, -1, -1):
        if IDX_TO_OBJECT[int(image[centre, y, 0])] == "wall":
            return int(height - 1 - y)
    return None


def _parts(instruction: Any, done: bool = False) -> list[bool]:
    """For each atomic part of a BabyAI mission, whether it is done."""
    if not isinstance(instruction, SeqInstr):
        return [done]
    sequence: Any = instruction
    first = _parts(sequence.instr_a, done or sequence.a_done == "success")
    return first + _parts(sequence.instr_b, done or sequence.b_done == "success")


def _registered(prefix: str) -> dict[str, str]:
    """Name within the family -> gymnasium id; the version suffix is dropped."""
    ids = sorted(id for id in gymnasium.registry if id.startswith(prefix))
    return {re.sub(r"-v\d+$", "", id.removeprefix(prefix)): id for id in ids}
