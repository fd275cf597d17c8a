"""BabyAI and MiniGrid, described in words.

The observation is minigrid's partial view (7 x 7 cells in front of the agent) as text, in steps
relative to the agent and in the words of its actions: "red ball 2 forward 1 left, wall 3
forward". An action is one word. Ids: `babyai/GoToLocalS5N2` is minigrid's
`BabyAI-GoToLocalS5N2-v0`, `minigrid/Empty-5x5` its `MiniGrid-Empty-5x5-v0`.

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
from dataclasses import replace
from typing import Any, ClassVar

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pygame's and gymnasium's notices
    import gymnasium
    import minigrid
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX
    from minigrid.envs.babyai.core.verifier import AfterInstr, SeqInstr
    from minigrid.utils.baby_ai_bot import BabyAIBot

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.rare_capabilities import Pictured
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, refused
from palaestra.environments.families.babyai.turns import TURNS, UNKNOWN
from palaestra.environments.shared.oracle_plan import OraclePlan
from palaestra.environments.shared.png_images import png

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


class MiniGrid(
    Adapter,
    Pictured,
    id="minigrid",
    capabilities={"state_key", "snapshot", "admissible", "picture"},
):
    """The MiniGrid levels."""

    prefix: ClassVar[str] = "MiniGrid-"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        known = _registered(self.prefix)
        self._solved = False
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._env: Any = gymnasium.make(known[name], disable_env_checker=True).unwrapped

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = super().spec_of(name)
        return replace(spec, typical_turns=TURNS.get(cls.prefix + name, UNKNOWN))

    @classmethod
    def names(cls) -> list[str]:
        """Return the registered levels, also those that other imported packages have added."""
        return sorted(_registered(cls.prefix))

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS

    def _begin(self, task: Task) -> Observation:
        with contextlib.redirect_stdout(io.StringIO()):  # rejected samples are printed
            view, _ = self._env.reset(seed=task.seed)
        self._solved = False
        return Observation(f"Mission: {self._env.mission}\n{self._render(view)}")

    def _act(self, action: Action) -> Transition:
        word = parse(action.text)
        if word is None:
            return refused(f"You can only reply with {', '.join(WORDS[:-1])}.")
        view, reward, terminated, truncated, _ = self._env.step(WORDS.index(word))
        reward = float(reward)
        self._solved = bool(terminated) and reward > 0
        return Transition(
            Observation(self._render(view)),
            reward=reward,
            terminated=bool(terminated),
            truncated=bool(truncated)
            and not terminated,  # an end on the last step is not a truncation
            success=self._solved,
        )

    def close(self) -> None:
        self._env.close()

    def picture(self) -> bytes:
        """Render the 7 x 7 cells that the agent sees, facing up: 112 x 112 pixels."""
        return png(self._env.get_pov_render(tile_size=16))

    def caption(self) -> str:
        """Return the mission, as the first observation says it."""
        return f"Mission: {self._env.mission}"

    def state_key(self) -> str:
        """Hash the grid, the agent, what it carries and the mission; not the step count."""
        env = self._env
        carried = env.carrying.encode() if env.carrying else None
        digest = hashlib.blake2b(env.grid.encode().tobytes(), digest_size=12)
        place = (*map(int, env.agent_pos), int(env.agent_dir))
        digest.update(repr((place, carried, env.mission)).encode())
        return digest.hexdigest()

    def admissible(self) -> list[str]:
        """List the action words; each is valid anywhere, but may change nothing."""
        return list(WORDS[:-1])

    def snapshot(self) -> bytes:
        return self._saved(pickle.dumps((self._env, self._solved)), minigrid.__version__)

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot; trust only your own: it is a pickle, which can run any code."""
        body = self._loaded(snapshot, minigrid.__version__)
        self._env, self._solved = pickle.loads(body)

    def _render(self, view: dict[str, Any]) -> str:
        return describe(view["image"], self._env.carrying)


PRIVILEGED = (
    *("x", "y"),  # of the agent, in sizes of the grid
    *("right", "down", "left", "up"),  # 1 for where it faces
    "carries",
    *("goal ahead", "goal to the right"),  # the nearest object that the mission wants now
)


class BabyAI(MiniGrid, id="babyai", capabilities={"oracle", "progress"}, privileged=PRIVILEGED):
    """The BabyAI levels: missions in language, with the package's expert bot."""

    prefix = "BabyAI-"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._plan = OraclePlan()

    def _begin(self, task: Task) -> Observation:
        self._plan.clear()
        return super()._begin(task)

    def _act(self, action: Action) -> Transition:
        self._plan.record(action.text)
        return super()._act(action)

    def restore(self, snapshot: bytes) -> None:
        self._plan.clear()
        super().restore(snapshot)

    def oracle(self) -> list[Action]:
        """Return the bot's plan from here to the goal; empty if the bot finds none."""
        return [] if self._over else self._plan.remaining(self._found)

    def _found(self) -> list[str]:
        env = copy.deepcopy(self._env)
        env.max_steps += env.step_count  # the bot may need more steps than are left
        found = _bot_plan(copy.deepcopy(env))
        if found or env.carrying is None:
            return found
        # most of its plans assume empty hands, and fail an assertion otherwise
        return _bot_plan(env, _lay_down(env))

    def progress(self) -> float:
        """Return the share of the mission's parts that are done."""
        if self._solved:
            return 1.0
        parts = _parts(self._env.instrs)
        return sum(parts) / len(parts)

    def privileged_state(self) -> list[float]:
        """Return where the agent and its goal are, most of which it mostly cannot see."""
        env = self._env
        (x, y), size = env.agent_pos, max(env.width, env.height)
        facing = [float(env.agent_dir == direction) for direction in range(4)]
        goals = _wanted(env.instrs)
        ahead = right = 0.0
        if goals:
            gx, gy = min(goals, key=lambda place: abs(place[0] - x) + abs(place[1] - y))
            dx, dy = env.dir_vec
            ahead = ((gx - x) * dx + (gy - y) * dy) / size
            right = ((gy - y) * dx - (gx - x) * dy) / size
        return [x / size, y / size, *facing, float(env.carrying is not None), ahead, right]

    def state_key(self) -> str:
        done = "".join(str(int(part)) for part in _parts(self._env.instrs))
        return f"{super().state_key()}-{done}"


def _bot_plan(env: Any, before: Sequence[int] = ()) -> list[str]:
    """Return the actions `before` and the bot's actions to the goal; empty without success."""
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
        except Exception:  # the bot fails an assertion in levels it cannot solve
            return []


def _lay_down(env: Any) -> list[int]:
    """Drop the carried object on the first free side from the left; return the actions."""
    actions: list[int] = []
    while env.carrying is not None and len(actions) < 4:
        free = env.grid.get(*env.front_pos) is None
        actions.append(int(env.actions.drop if free else env.actions.left))
        env.step(actions[-1])
    return actions


def parse(text: str) -> str | None:
    """Return the action word in the first line of `text`, or None."""
    lines = text.strip().lower().splitlines()
    cleaned = re.sub(r"[^a-z ]", "", lines[0]).strip() if lines else ""
    cleaned = ALIASES.get(cleaned, cleaned)
    return cleaned if cleaned in WORDS else None


def describe(image: Any, carrying: Any) -> str:
    """Describe a partial view [width, height, (object, color, state)], agent at bottom centre."""
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
    """Return for each atomic part of a BabyAI mission whether it is done."""
    if not isinstance(instruction, SeqInstr):
        return [done]
    sequence: Any = instruction
    first = _parts(sequence.instr_a, done or sequence.a_done == "success")
    return first + _parts(sequence.instr_b, done or sequence.b_done == "success")


def _wanted(instruction: Any) -> list[tuple[int, int]]:
    """Return the positions of the objects that the first undone part of a mission is about."""
    if not isinstance(instruction, SeqInstr):
        described = getattr(instruction, "desc", None) or instruction.desc_move
        return [(int(x), int(y)) for x, y in described.obj_poss]
    sequence: Any = instruction
    # "a after b" begins with b
    later = isinstance(sequence, AfterInstr)
    order = ("b", "a") if later else ("a", "b")
    undone = [part for part in order if getattr(sequence, f"{part}_done") != "success"]
    return _wanted(getattr(sequence, f"instr_{undone[0] if undone else order[-1]}"))


def _registered(prefix: str) -> dict[str, str]:
    """Map names within the family to gymnasium ids; names have no version suffix."""
    ids = sorted(id for id in gymnasium.registry if id.startswith(prefix))
    return {re.sub(r"-v\d+$", "", id.removeprefix(prefix)): id for id in ids}
