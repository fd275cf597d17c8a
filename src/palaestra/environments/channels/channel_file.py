"""The declaration of channels and boards, in a TOML file or by a word."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from palaestra.core.errors import InputError

ALL = "all"


class _Open(BaseModel):
    """What some players may write and some may read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    writers: tuple[str, ...] = Field((), description="players; empty: all")
    readers: tuple[str, ...] = Field((), description="players; empty: all")

    def may_write(self, player: str) -> bool:
        """Return whether a player may write there."""
        return not self.writers or player in self.writers

    def may_read(self, player: str) -> bool:
        """Return whether a player may read there."""
        return not self.readers or player in self.readers


class Channel(_Open):
    """A way on which players send messages to each other."""

    capacity: int = Field(
        100, ge=1, description="messages that wait for one reader; when full, more are refused"
    )
    delay: int = Field(0, ge=0, description="moves of the environment before a message arrives")
    loss: float = Field(0.0, ge=0, lt=1, description="the share of messages that never arrive")
    order: Literal["sent", "random"] = Field("sent", description="in which messages are shown")
    length: int = Field(2000, ge=1, description="the most characters of a message")
    content: dict[str, Any] | None = Field(
        None, description="the JSON schema of a message, which is then JSON; unset: any text"
    )


class Board(_Open):
    """Values under keys, each with a version, which players write and read."""

    length: int = Field(2000, ge=1, description="the most characters of a value")


class Channels(BaseModel):
    """All channels and boards of an environment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: dict[str, Channel] = Field(default_factory=dict)
    boards: dict[str, Board] = Field(default_factory=dict)
    per_turn: int = Field(4, ge=1, description="messages, reads and writes of a player in one turn")


def declared(value: str, players: Sequence[str]) -> Channels:
    """Return the channels that a value of the knob declares.

    Args:
        value: `all`, for one channel of that name between all players, or a TOML file.
        players: of the environment.

    Raises:
        InputError: the file cannot be read or parsed, it names somebody who does not play, or it
            declares nothing.
    """
    if value == ALL:
        return Channels(channels={ALL: Channel()})
    try:
        table = tomllib.loads(Path(value).read_text(encoding="utf-8"))
        found = Channels.model_validate(table)
    except OSError as error:
        raise InputError(
            f"messages={value} cannot be read ({error.strerror}); give 'all', or a TOML file."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"messages={value} is no TOML: {error}; correct the file.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"messages={value}: '{where}': {first['msg']}; correct it.") from None
    if not found.channels and not found.boards:
        raise InputError(f"messages={value} declares no channel and no board; declare one.")
    parts: Mapping[str, _Open] = {**found.channels, **found.boards}
    for name, part in parts.items():
        for player in (*part.writers, *part.readers):
            if player not in players:
                raise InputError(
                    f"messages={value}: '{name}' names '{player}', who does not play; the players "
                    f"are {', '.join(players)}."
                )
    return found
