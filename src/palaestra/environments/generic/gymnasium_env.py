"""Any environment of Gymnasium whose observations and actions can be put into words.

Ids: `gymnasium/CartPole-v1` is Gymnasium's `CartPole-v1`; `gymnasium/package.module:Id-v0` imports
the module that registers an id first. Source: Towers et al. 2024 (Gymnasium); its toy texts are
after Sutton and Barto 2018 and Dietterich 2000, its classic control after Barto et al. 1983.

The package's dynamics, rewards and ends decide; spaces become words as `gymnasium_spaces.py`
says. Where an id offers an "ansi" rendering it is shown, with the highlighted character marked
and colours dropped, followed by the observation in words.

Success is what the environment's documentation calls the goal (`Words.solved`): Taxi and
CliffWalking terminate at the goal only; FrozenLake and Blackjack are won by terminating with a
positive reward. All others are solved if the return of a whole episode reaches the reward
threshold of the spec, and never if there is none. An episode that its time limit ends with the
threshold reached (a pole that stayed up) is solved, so it counts as terminated, not truncated.

There is an oracle where a table of certain transitions allows an exact one (Taxi, CliffWalking);
progress is there the share of the shortest way that is done. State keys are the state of the
table with its dice, and everywhere else all that happened. Snapshots replay the actions;
environments whose spec says that they are nondeterministic have neither.

Others describe their environments in a few lines, in a subclass to be registered as a family of
its own (or addressed as `my_package:Corridors/Corridor-v0`)::

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
import hashlib
import importlib
import io
import json
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, load_env_creator

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError, MissingPackage, UnknownName
from palaestra.core.task import Task, TaskSet
from palaestra.environments.generic.gymnasium_context import change, parameters
from palaestra.environments.generic.gymnasium_plan import Plan, is_certain
from palaestra.environments.generic.gymnasium_spaces import (
    Answers,
    answers,
    check_observed,
    line,
    told,
)
from palaestra.environments.generic.gymnasium_words import KNOWN, Solved, Words, of
from palaestra.environments.snapshots import opened, sealed

HIGHLIGHTED = re.compile(r"\x1b\[(?:\d+;)*4[0-7](?:;\d+)*m(.)\x1b\[0m")
COLOURED = re.compile(r"\x1b\[[\d;]*m")
OWN = re.compile(r"gymnasium\.envs\.(\w+)")
NEEDS = {"box2d": "Box2D", "mujoco": "mujoco", "phys2d": "jax", "tabular": "jax"}
PICTURES = ("CarRacing-v3",)
TURNS = 100  # of an episode without a limit


@dataclass(frozen=True, slots=True)
class Facts:
    """What can only be known of an environment by making it."""

    capabilities: frozenset[Capability]
    deterministic: bool
    plan: Plan | None


class Gymnasium(Environment):
    """One of Gymnasium's environments. Subclasses describe and set up others."""

    capabilities = frozenset({Capability.STATE_KEY, Capability.SNAPSHOT})
    words: ClassVar[Mapping[str, Words]] = KNOWN
    """How to speak of environments, by their ids, with or without the version."""

    settings: ClassVar[Mapping[str, Any]] = {}
    """Arguments for `gymnasium.make`, such as {"is_slippery": False}."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._words = of(name, self.words)
        self._env = self._made(name)
        self._answers = self._readable(name, self._env)
        self.context = parameters(name, self._env)
        facts = _facts(type(self), name)
        self.capabilities = facts.capabilities  # type: ignore[misc]
        self.deterministic = facts.deterministic  # type: ignore[misc]
        self._plan = facts.plan
        self._draws = self._env.render_mode == "ansi"
        self._pictures: dict[object, str] = {}  # by state and last action
        self._seed: int | None = None
        self._said: list[str] = []  # that was understood, since the reset
        self._far: int | None = None  # the length of the shortest way from the start
        self._mask: Any = None  # which actions change something, where the package says so
        self._return = 0.0
        self._over = self._solved = False

    @classmethod
    def names(cls) -> list[str]:
        """What is described, or Gymnasium's own ids in their newest versions, if installed."""
        return _installed() if cls.words is KNOWN else list(cls.words)

    @classmethod
    def check_name(cls, name: str) -> None:
        _spec(name, cls.names())

    @classmethod
    def capabilities_of(cls, name: str) -> frozenset[Capability]:
        return _facts(cls, name).capabilities

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        return f"{self._words.goal} {self._answers.asked}".strip()

    @property
    def typical_turns(self) -> int:
        limit = self._env.spec.max_episode_steps if self._env.spec else None
        return self._words.turns or limit or TURNS

    def set_context(self, values: Mapping[str, float]) -> None:
        super().set_context({name: values[name] for name in values if name not in self.context})
        change(self._env, {**self.context, **values})

    def reset(self, task: Task) -> Observation:
        """Start an episode with the task's seed.

        Raises:
            InputError: the task has parameters; what can be set is set by a subclass.
        """
        if task.parameters:
            raise InputError(
                f"Gymnasium's tasks take no parameters, but '{task.id}' has "
                f"{', '.join(map(repr, task.parameters))}; "
                "set arguments of an environment in a subclass (`settings`)."
            )
        return self._start(task.seed)

    def step(self, action: Action) -> Transition:
        self._started()
        said = line(action.text)
        if self._over:
            return Transition(Observation("It is over."), valid=False)
        choice = self._answers.read(said)
        if choice is None:
            return Transition(Observation(self._answers.asked), valid=False)
        self._said.append(said)
        with _quiet():
            seen, reward, terminated, truncated, info = self._env.step(choice)
        self._return += float(reward)
        self._mask = info.get("action_mask")
        self._over = bool(terminated or truncated)
        self._solved = self._over and self._is_solved(bool(terminated), float(reward))
        return Transition(
            Observation(self._tell(seen)),
            reward=float(reward),
            terminated=bool(terminated) or self._solved,
            truncated=bool(truncated) and not terminated and not self._solved,
            success=self._solved,
        )

    def close(self) -> None:
        self._env.close()

    def state_key(self) -> str:
        """Of a table, the state and the dice that are still to fall; else all that happened."""
        seed, inner = self._started(), self._env.unwrapped
        if self._plan is not None:
            return f"{self.name}/{seed}/{int(inner.s)}/{self._over}"
        if self._words.tabular:
            state: object = (int(inner.s), inner.np_random.bit_generator.state, self._over)
        else:
            state = (seed, self._said)
        return hashlib.blake2b(repr((self.name, state)).encode(), digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        """The seed and the actions so far."""
        if Capability.SNAPSHOT not in self.capabilities:
            self._undeclared(Capability.SNAPSHOT)
        body = json.dumps({"seed": self._started(), "said": self._said}).encode()
        return sealed(self._id, gymnasium.__version__, body)

    def restore(self, snapshot: bytes) -> None:
        """Act again; raises InputError if it is another environment's snapshot."""
        if Capability.SNAPSHOT not in self.capabilities:
            self._undeclared(Capability.SNAPSHOT)
        saved = json.loads(opened(snapshot, self._id, gymnasium.__version__))
        self._start(saved["seed"])
        for said in saved["said"]:
            self.step(Action(said))

    def progress(self) -> float:
        """The share of the shortest way that is done; 0 where there is more left than at first."""
        if self._plan is None:
            self._undeclared(Capability.PROGRESS)
        self._started()
        left = self._plan.left(int(self._env.unwrapped.s))
        if self._solved:
            return 1.0
        return max(0.0, 1 - left / self._far) if left and self._far else 0.0

    def oracle(self) -> list[Action]:
        """The shortest way from here."""
        if self._plan is None:
            self._undeclared(Capability.ORACLE)
        self._started()
        way = self._plan.way(int(self._env.unwrapped.s)) if not self._over else []
        return [Action(self._answers.words[action]) for action in way]

    def admissible(self) -> list[str]:
        """The action words; without those that the package's own mask says change nothing."""
        if Capability.ADMISSIBLE not in self.capabilities:
            self._undeclared(Capability.ADMISSIBLE)
        self._started()
        words = list(self._answers.words)
        if self._over or self._mask is None or len(self._mask) != len(words):
            return [] if self._over else words
        return [word for word, useful in zip(words, self._mask, strict=True) if useful] or words

    def sample_action(self, dice: random.Random) -> Action:
        return Action(self._answers.drawn(dice))

    # ── details ──────────────────────────────────────────────────────────────

    @classmethod
    def _made(cls, name: str) -> Any:
        """The package's environment, which draws text if it can.

        Raises:
            UnknownName: Gymnasium has no such id.
            InputError: it is out of date, or needs other arguments.
            MissingPackage: it needs a package that is not installed.
        """
        spec = _spec(name, cls.names())
        try:
            with _quiet():
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
    def _readable(cls, name: str, env: Any) -> Answers:
        check_observed(env.observation_space)
        return answers(env.action_space, of(name, cls.words).actions)

    @property
    def _id(self) -> str:
        return f"{type(self).__name__.lower()}/{self.name}"

    def _start(self, seed: int) -> Observation:
        with _quiet():
            seen, info = self._env.reset(seed=seed)
        self._seed, self._said, self._return = seed, [], 0.0
        self._mask = info.get("action_mask")
        self._over = self._solved = False
        if self._plan is not None:
            self._far = self._plan.left(int(self._env.unwrapped.s))
        return Observation(self._tell(seen))

    def _started(self) -> int:
        if self._seed is None:
            raise InputError("This environment has no episode yet; call reset with a task first.")
        return self._seed

    def _tell(self, seen: Any) -> str:
        space, words = self._env.observation_space, self._words
        if words.tell is not None:
            described = words.tell(self._env.unwrapped, seen)
        else:
            described = told(space, seen, words.observed)
        if not self._draws:
            return described or "Nothing."
        return f"{self._picture()}\n{described}".strip("\n")

    def _picture(self) -> str:
        """The package's drawing; those of a table are kept: they take longer than a step."""
        inner = self._env.unwrapped
        state = (int(inner.s), inner.lastaction) if self._words.tabular else None
        if state not in self._pictures:
            with _quiet():
                drawn = uncoloured(str(self._env.render()), self._words.marker)
            if state is None:
                return drawn
            self._pictures[state] = drawn
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


def uncoloured(drawn: str, marker: str) -> str:
    """A drawing without colours and empty ends; `marker` is put where it was highlighted."""
    marked = HIGHLIGHTED.sub(lambda found: marker.format(found[1]), drawn)
    return COLOURED.sub("", marked).strip("\n")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notices of Gymnasium's and of drawing packages
        yield


@cache
def _facts(cls: type[Gymnasium], name: str) -> Facts:
    env = cls._made(name)
    try:
        words, has = of(name, cls.words), set(cls.capabilities)
        if cls._readable(name, env).words:
            has.add(Capability.ADMISSIBLE)
        deterministic = not (env.spec and env.spec.nondeterministic)
        if not deterministic:
            has -= {Capability.STATE_KEY, Capability.SNAPSHOT}
        plan = None
        if words.tabular and is_certain(env.unwrapped.P):
            plan = Plan(env.unwrapped.P, lambda reward: words.solved is Solved.ENDS or reward > 0)
            has |= {Capability.ORACLE, Capability.PROGRESS}
        return Facts(frozenset(has), deterministic, plan)
    finally:
        env.close()


def _spec(name: str, known: list[str]) -> EnvSpec:
    """What Gymnasium has registered of that name, after importing what stands before a colon."""
    module, _, id = name.rpartition(":")
    try:
        with _quiet():
            if module:
                importlib.import_module(module)
            return gymnasium.spec(id)
    except ImportError as error:
        raise MissingPackage(f"The module of '{name}' cannot be imported: {error}.") from error
    except gymnasium.error.DeprecatedEnv as error:
        raise InputError(f"Gymnasium has '{name}' no more: {error}") from error
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
