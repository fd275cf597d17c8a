"""Crafter's world made deterministic, with dumps to save and restore it.

The package samples everything from one seeded generator, with one exception: to remove a creature
it picks one by index from a *set*, whose order is the order of memory addresses. Two runs with one
seed therefore diverge, often at the tenth step. `Repeatable` passes the creatures to the package
sorted by position and leaves the sampling to it, so the result is one of the package's own possible
outcomes.

A dump has everything except the textures. At night, drawing the picture uses the same generator, so
each picture must be drawn exactly once; the last one is kept.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import crafter
import numpy as np
from crafter import engine

VERSION = version("crafter")
FRESH = 64  # size of the cache of new worlds: making one takes as long as a thousand steps
IGNORED = ("world", "random", "player", "action", "achievements")
"""Properties of things that do not affect the future, or that are hashed elsewhere."""


class Repeatable(crafter.Env):  # type: ignore[misc]
    """Crafter's environment, with equal worlds for equal seeds and actions."""

    picture: Any = None  # of the last step: uint8[64, 64, 3]

    def reset(self) -> Any:
        self.picture = super().reset()
        return self.picture

    def step(self, action: int) -> tuple[Any, float, bool, dict[str, Any]]:
        self.picture, reward, done, info = super().step(action)
        return self.picture, reward, done, info

    @property
    def world(self) -> Any:
        return self._world

    @property
    def player(self) -> Any:
        return self._player

    @property
    def unlocked(self) -> set[str]:
        """The achievements so far."""
        return self._unlocked

    @property
    def steps(self) -> int:
        return self._step

    @property
    def view(self) -> tuple[int, int]:
        """Width and height of the view, with the player in the centre."""
        width, height = self._local_view._grid
        return int(width), int(height)

    def material(self, number: int) -> str:
        """Return a material's name; "nothing" beyond the edge of the world."""
        return self._world._mat_names[number] or "nothing"

    def seen(self) -> tuple[bytes, dict[int, Any]]:
        """Return the material numbers of the cells in view, column by column, and the things there.

        Beyond the edge of the world the number is 0.
        """
        world, (width, height) = self._world, self.view
        left, top = int(self._player.pos[0]) - width // 2, int(self._player.pos[1]) - height // 2
        inside = slice(max(left, 0), left + width), slice(max(top, 0), top + height)
        ground, standing = world._mat_map[inside], world._obj_map[inside]
        if ground.shape != (width, height):
            before = max(-left, 0), max(-top, 0)
            ground, standing = (
                _framed(part, (width, height), before) for part in (ground, standing)
            )
        places, things = standing.ravel(), world._objects
        return ground.tobytes(), {at: things[places[at]] for at in places.nonzero()[0].tolist()}

    def dump(self) -> bytes:
        """Save everything that the future depends on, and the last picture."""
        body = io.BytesIO()
        _Pickler(body).dump(vars(self))
        return body.getvalue()

    def load(self, dump: bytes) -> None:
        """Restore a dump; trust only your own: it is a pickle, which can run any code."""
        self.__dict__.update(_Unpickler(io.BytesIO(dump), self._textures).load())

    def key(self) -> str:
        """Hash everything that the future depends on."""
        world = self._world
        digest = hashlib.blake2b(world._mat_map.tobytes(), digest_size=12)
        kind, numbers, *rest = world.random.get_state()
        digest.update(numbers.tobytes())
        things = [(type(thing).__name__, _properties(thing)) for thing in world.objects]
        past = (self._step, self._last_health, sorted(self._unlocked), list(world.chunks))
        digest.update(repr((kind, rest, things, past)).encode())
        return digest.hexdigest()

    def _balance_chunk(self, chunk: Any, objs: Iterable[Any]) -> None:
        super()._balance_chunk(chunk, sorted(objs, key=_place))


def _framed(part: Any, size: tuple[int, int], before: tuple[int, int]) -> Any:
    """Pad a part of a map with zeros to `size`, with `before` zeros before it on each axis."""
    return np.pad(
        part, [(n, whole - n - had) for n, whole, had in zip(before, size, part.shape, strict=True)]
    )


@functools.lru_cache(FRESH)
def fresh(seed: int) -> bytes:
    """Return the dump of a new world."""
    env = Repeatable(seed=seed)
    env.reset()
    return env.dump()


class _Pickler(pickle.Pickler):
    def persistent_id(self, thing: Any) -> str | None:
        return "textures" if isinstance(thing, engine.Textures) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, body: io.BytesIO, textures: Any) -> None:
        super().__init__(body)
        self._textures = textures

    def persistent_load(self, _: Any) -> Any:
        return self._textures


def _place(thing: Any) -> tuple[int, int]:
    """Return the position of a thing; it is unique."""
    x, y = thing.pos
    return int(x), int(y)


def _properties(thing: Any) -> list[tuple[str, Any]]:
    """Return the properties of a thing that affect the future."""
    return [
        (name, value.tolist() if hasattr(value, "tolist") else value)
        for name, value in sorted(vars(thing).items())
        if name not in IGNORED
    ]
