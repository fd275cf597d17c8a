"""Any environment of Gymnasium whose observations and actions can be rendered as text.

Ids: `gymnasium/CartPole-v1` is Gymnasium's `CartPole-v1`; `gymnasium/package.module:Id-v0` imports
the module that registers an id first. Source: Towers et al. 2024 (Gymnasium); its toy texts are
after Sutton and Barto 2018 and Dietterich 2000, its classic control after Barto et al. 1983.

Dynamics, rewards and ends are the package's; `spaces.py` renders spaces as text. If an id has an
"ansi" rendering, it is shown, with the highlighted character marked and without colours, followed
by the observation as text.

Success is what the environment's documentation calls the goal (`Words.solved`): Taxi and
CliffWalking terminate at the goal only; FrozenLake and Blackjack are won by terminating with a
positive reward. All others are solved if the return of a whole episode reaches the reward
threshold of the spec, and never if there is none. An episode that reaches the threshold at its
time limit (a pole that stayed up) is solved, so it counts as terminated, not truncated.

Environments with a deterministic transition table (Taxi, CliffWalking) have an exact oracle;
their progress is the share of the shortest path that is done. A state key is the table's state with
its random generator; without a table, the whole history. Snapshots replay the actions;
environments whose spec says that they are nondeterministic have neither.

Subclasses describe other environments in a few lines and are registered as a separate family (or
addressed as `my_package:Corridors/Corridor-v0`)::

    gymnasium.register("Corridor-v0", "my_package:Corridor", max_episode_steps=20)

    class Corridors(Gymnasium):
        words = {
            "Corridor-v0": Words(
                goal="Walk through the dark to the door.",
                actions=("back", "on"),
                observed=("steps to the door",),
                solved=Solved.WINS,
            )
        }

"""

from __future__ import annotations

import contextlib
import importlib
import io
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, load_env_creator

from palaestra.core.environment import Action, Capability, Observation, Spec, Transition, declared
from palaestra.core.errors import InputError, MissingPackage, UnknownName
from palaestra.core.rare_capabilities import Contextual, Sampling
from palaestra.core.task import Task
from palaestra.environments.base import Replayed, hashed, refused, without_parameters
from palaestra.environments.families.gymnasium.context import change, parameters
from palaestra.environments.families.gymnasium.plan import Plan, is_certain
from palaestra.environments.families.gymnasium.spaces import (
    ActionParser,
    action_parser,
    check_observed,
    line,
    render_value,
)
from palaestra.environments.families.gymnasium.words import KNOWN, Solved, Words, of

HIGHLIGHTED = re.compile(r"\x1b\[(?:\d+;)*4[0-7](?:;\d+)*m(.)\x1b\[0m")
COLOURED = re.compile(r"\x1b\[[\d;]*m")
OWN = re.compile(r"gymnasium\.envs\.(\w+)")
NEEDS = {"box2d": "Box2D", "mujoco": "mujoco", "phys2d": "jax", "tabular": "jax"}
PICTURES = ("CarRacing-v3",)
TURNS = 100  # typical turns of an episode without a limit


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of an environment that are known only after making it."""

    capabilities: frozenset[Capability]
    deterministic: bool
    turns: int
    context: Mapping[str, float]
    plan: Plan | None


class Gymnasium(
    Replayed,
    Sampling,
    Contextual,
    id="gymnasium",
    capabilities={"state_key", "snapshot"},
):
    """One of Gymnasium's environments; subclasses describe and configure others."""

    package = gymnasium.__version__
    words: ClassVar[Mapping[str, Words]] = KNOWN
    """Descriptions of environments, by their ids, with or without the version."""

    settings: ClassVar[Mapping[str, Any]] = {}
    """Arguments for `gymnasium.make`, such as {"is_slippery": False}."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._words = of(name, self.words)
        self._env = self._made(name)
        self._parser = self._readable(name, self._env)
        self._plan = _facts(type(self), name).plan
        self._has_ansi = self._env.render_mode == "ansi"
        self._pictures: dict[object, str] = {}  # by state and last action
        self._start_distance: int | None = None  # length of the shortest path from the start
        self._mask: Any = None  # which actions change something, if the package says so
        self._return = 0.0
        self._solved = False

    @classmethod
    def names(cls) -> list[str]:
        """List the described ids, or Gymnasium's installed ids in their newest versions."""
        return _installed() if cls.words is KNOWN else list(cls.words)

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Return the spec of the package's environment, which is made once per process."""
        facts = _facts(cls, name)
        return replace(
            declared(cls).named(name),
            capabilities=facts.capabilities,
            deterministic=facts.deterministic,
            typical_turns=facts.turns,
            context=facts.context,
        )

    @property
    def instructions(self) -> str:
        return f"{self._words.goal} {self._parser.instruction}".strip()

    def set_context(self, values: Mapping[str, float]) -> None:
        default = self.spec.context
        for name in values.keys() - default.keys():
            raise UnknownName("context", name, default)
        change(self._env, {**default, **values})

    def _begin(self, task: Task) -> Observation:
        """Start an episode with the task's seed.

        Raises:
            InputError: the task has parameters; a subclass sets arguments instead.
        """
        without_parameters(task, "set arguments of an environment in a subclass (`settings`)")
        with quiet():
            seen, info = self._env.reset(seed=task.seed)
        self._return, self._solved = 0.0, False
        self._mask = info.get("action_mask")
        if self._plan is not None:
            self._start_distance = self._plan.left(int(self._env.unwrapped.s))
        return Observation(self._render(seen))

    def _act(self, action: Action) -> Transition:
        choice = self._parser.parse(line(action.text))
        if choice is None:
            return refused(self._parser.instruction)
        with quiet():
            seen, reward, terminated, truncated, info = self._env.step(choice)
        self._return += float(reward)
        self._mask = info.get("action_mask")
        over = bool(terminated or truncated)
        self._solved = over and self._is_solved(bool(terminated), float(reward))
        return Transition(
            Observation(self._render(seen)),
            reward=float(reward),
            terminated=bool(terminated) or self._solved,
            truncated=bool(truncated) and not terminated and not self._solved,
            success=self._solved,
        )

    def close(self) -> None:
        self._env.close()

    def state_key(self) -> str:
        """Hash a table's state and random generator; without a table, the whole history."""
        seed, inner = self._current().seed, self._env.unwrapped
        if self._plan is not None:
            return f"{self.spec.name}/{seed}/{int(inner.s)}/{self._over}"
        if self._words.tabular:
            state: object = (int(inner.s), inner.np_random.bit_generator.state, self._over)
        else:
            state = (seed, [line(action.text) for action in self._past])
        return hashed(self.spec.name, state)

    def progress(self) -> float:
        """Return the share of the shortest path that is done; 0 if farther than at the start."""
        if self._plan is None:
            self._undeclared(Capability.PROGRESS)
        self._current()
        left = self._plan.left(int(self._env.unwrapped.s))
        if self._solved:
            return 1.0
        return max(0.0, 1 - left / self._start_distance) if left and self._start_distance else 0.0

    def oracle(self) -> list[Action]:
        """Return the shortest plan from here."""
        if self._plan is None:
            self._undeclared(Capability.ORACLE)
        self._current()
        plan = self._plan.actions(int(self._env.unwrapped.s)) if not self._over else []
        return [Action(self._parser.words[action]) for action in plan]

    def admissible(self) -> list[str]:
        """List the action words, without those that have no effect by the package's own mask."""
        if Capability.ADMISSIBLE not in self.spec.capabilities:
            self._undeclared(Capability.ADMISSIBLE)
        self._current()
        words = list(self._parser.words)
        if self._over or self._mask is None or len(self._mask) != len(words):
            return [] if self._over else words
        return [word for word, useful in zip(words, self._mask, strict=True) if useful] or words

    def sample_action(self, rng: random.Random) -> Action:
        return Action(self._parser.sample(rng))

    # ── details ──────────────────────────────────────────────────────────────

    @classmethod
    def _made(cls, name: str) -> Any:
        """Make the package's environment, with "ansi" rendering if it has one.

        Raises:
            UnknownName: Gymnasium has no such id.
            InputError: it is out of date, or needs other arguments.
            MissingPackage: it needs a package that is not installed.
        """
        spec = _spec(name, cls.names())
        try:
            with quiet():
                creator: Any = spec.entry_point
                if isinstance(creator, str):
                    creator = load_env_creator(creator)
                modes = getattr(creator, "metadata", {}).get("render_modes", ())
                settings = {"render_mode": "ansi"} if "ansi" in modes else {}
                return gymnasium.make(
                    spec, disable_env_checker=True, **{**settings, **cls.settings}
                )
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise MissingPackage(f"The environment '{name}' cannot be made: {error}") from error
        except (gymnasium.error.Error, TypeError) as error:
            raise InputError(f"Gymnasium refuses to make '{name}': {error}") from error

    @classmethod
    def _readable(cls, name: str, env: Any) -> ActionParser:
        check_observed(env.observation_space)
        return action_parser(env.action_space, of(name, cls.words).actions)

    def _render(self, seen: Any) -> str:
        space, words = self._env.observation_space, self._words
        if words.render is not None:
            described = words.render(self._env.unwrapped, seen)
        else:
            described = render_value(space, seen, words.observed)
        if not self._has_ansi:
            return described or "Nothing."
        return f"{self._picture()}\n{described}".strip("\n")

    def _picture(self) -> str:
        """Return the package's drawing; for a table, cache it: it takes longer than a step."""
        inner = self._env.unwrapped
        state = (int(inner.s), inner.lastaction) if self._words.tabular else None
        if state not in self._pictures:
            with quiet():
                drawing = uncoloured(str(self._env.render()), self._words.marker)
            if state is None:
                return drawing
            self._pictures[state] = drawing
        return self._pictures[state]

    def _is_solved(self, terminated: bool, reward: float) -> bool:
        match self._words.solved:
            case Solved.ENDS:
                return terminated
            case Solved.WINS:
                return terminated and reward > 0
            case Solved.THRESHOLD:
                threshold = self._env.spec.reward_threshold if self._env.spec else None
                return threshold is not None and self._return >= threshold


def uncoloured(drawing: str, marker: str) -> str:
    """Remove colours and empty ends from a drawing; mark highlighted characters."""
    marked = HIGHLIGHTED.sub(lambda found: marker.format(found[1]), drawing)
    return COLOURED.sub("", marked).strip("\n")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what Gymnasium and drawing packages print or warn of from being seen."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def _facts(cls: type[Gymnasium], name: str) -> Facts:
    env = cls._made(name)
    try:
        words, has = of(name, cls.words), set(declared(cls).capabilities)
        if cls._readable(name, env).words:
            has.add(Capability.ADMISSIBLE)
        deterministic = not (env.spec and env.spec.nondeterministic)
        if not deterministic:
            has -= {Capability.STATE_KEY, Capability.SNAPSHOT}
        plan = None
        if words.tabular and is_certain(env.unwrapped.P):
            plan = Plan(env.unwrapped.P, lambda reward: words.solved is Solved.ENDS or reward > 0)
            has |= {Capability.ORACLE, Capability.PROGRESS}
        limit = env.spec.max_episode_steps if env.spec else None
        turns = words.turns or limit or TURNS
        return Facts(frozenset(has), deterministic, turns, parameters(name, env), plan)
    finally:
        env.close()


def _spec(name: str, known: list[str]) -> EnvSpec:
    """Return Gymnasium's spec of that name, after importing the module before a colon."""
    module, _, id = name.rpartition(":")
    try:
        with quiet():
            if module:
                importlib.import_module(module)
            return gymnasium.spec(id)
    except ImportError as error:
        raise MissingPackage(f"The module of '{name}' cannot be imported: {error}.") from error
    except gymnasium.error.DeprecatedEnv as error:
        raise InputError(f"Gymnasium no longer has '{name}': {error}") from error
    except gymnasium.error.Error:
        raise UnknownName("Gymnasium environment", name, known) from None


def _installed() -> list[str]:
    found = []
    for id, spec in sorted(gymnasium.registry.items()):
        own = OWN.match(spec.entry_point) if isinstance(spec.entry_point, str) else None
        if own is None or id in PICTURES:
            continue
        needed = NEEDS.get(own[1])
        newest = find_highest_version(spec.namespace, spec.name) == spec.version
        if newest and (needed is None or find_spec(needed) is not None):
            found.append(id)
    return found
