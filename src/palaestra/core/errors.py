"""Everything that can go wrong, said in one sentence: what happened, to what, and what to do.

Two families matter to the command line: `InputError` (the caller gave something
that cannot work; exit code 2) and every other `PalaestraError` (the work started
and failed; exit code 1). What goes wrong *inside* an episode is no exception for
the run: it becomes an `Outcome` (see `outcome.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PalaestraError(Exception):
    """Base of all errors raised on purpose; `str(error)` is fit for a user's eyes."""

    exit_code = 1


class InputError(PalaestraError):
    """The caller's input cannot work; nothing was started and nothing was lost."""

    exit_code = 2


class UnknownName(InputError):
    """A name (environment, model, agent, algorithm, recipe, key …) that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = difflib.get_close_matches(name, self.known, n=1, cutoff=0.4)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        listing = ", ".join(self.known[:20]) + (", …" if len(self.known) > 20 else "")
        super().__init__(f"There is no {kind} '{name}'.{hint} Known: {listing}.")


class RecipeError(InputError):
    """A recipe whose keys or values are not understood."""


class GroupTooSmall(InputError):
    """A group statistic was asked of too few rollouts (the "others" do not exist)."""


class MissingPackage(InputError):
    """An optional package is not installed; the message names the extra to install."""


class MissingSystemPart(InputError):
    """A program outside Python (such as Java) is not installed."""


class CapabilityMissing(InputError):
    """An environment was asked for something that it does not declare."""


class TemplateBreaksPrefix(InputError):
    """A chat template cannot extend a conversation without changing earlier tokens."""

    def __init__(self, template: str, turn: int, remedy: str) -> None:
        self.template, self.turn = template, turn
        super().__init__(
            f"The chat template '{template}' rewrites earlier tokens when message {turn} is added, "
            f"so sampled tokens could not be trained exactly. {remedy}"
        )


class RunVersionMismatch(InputError):
    """A run folder was written by a version whose format this one does not read."""


class DamagedRun(InputError):
    """What a run has stored is not what was written: its files were changed or cut short."""


class RunLocked(InputError):
    """Another process is working on the same run folder."""


class StorageFull(PalaestraError):
    """A write failed because the disk (or a quota) is full; what was stored before is intact."""


class RunGone(PalaestraError):
    """The folder of a run was deleted or moved while the run went on: it cannot store anything."""


class CorruptCache(PalaestraError):
    """Cached model files do not match their recorded hash and could not be rebuilt."""


class TooManyFaults(PalaestraError):
    """Most episodes end in environment or infrastructure faults: the run would learn nothing."""


class WorkersUnavailable(PalaestraError):
    """Worker processes do not start, however often it is tried: no world can be had."""

    exit_code = 2


class EnvironmentFault(PalaestraError):
    """The world broke (crash, hang, rubbish): an outcome of the episode, never a score.

    `kind` is one of `crash`, `hang`, `memory`, `rubbish`, `reset`, `step`.
    """

    def __init__(self, kind: str, detail: str) -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"environment {kind}: {detail}")


class AgentFault(PalaestraError):
    """The agent did something that ends its episode as its own error (scored as a failure)."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"agent {kind}: {detail}")


class InfrastructureFault(PalaestraError):
    """Something outside agent and world broke (a model server, say); the episode has no result."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"infrastructure {kind}: {detail}")


class RequestRefused(InfrastructureFault):
    """A server that answers other requests refuses this one: the request is to blame, not it."""


class ContextTooLong(PalaestraError):
    """A prompt leaves no room in the model's context; ends the episode as truncated(context)."""
