"""The hierarchy of errors; each message states what happened, to what, and what to do.

The command line distinguishes two kinds: `InputError` (the caller's input cannot
work; exit code 2) and every other `PalaestraError` (the work started and failed;
exit code 1). An error *inside* an episode does not stop the run: it becomes an
`Outcome` (see `outcome.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PalaestraError(Exception):
    """The base of all errors raised on purpose; `str(error)` is a message for users."""

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
    """A recipe with unknown keys or invalid values."""


class GroupTooSmall(InputError):
    """A group statistic was computed over too few rollouts (there are no siblings)."""


class MissingPackage(InputError):
    """An optional package is not installed; the message names the extra to install."""


class MissingSystemPart(InputError):
    """A program outside Python (such as Java) is not installed."""


class CapabilityMissing(InputError):
    """An environment was used in a way that it does not declare."""


class TemplateBreaksPrefix(InputError):
    """A chat template cannot extend a conversation without changing earlier tokens."""

    def __init__(self, template: str, turn: int, remedy: str) -> None:
        self.template, self.turn = template, turn
        super().__init__(
            f"The chat template '{template}' rewrites earlier tokens when message {turn} is added, "
            f"so sampled tokens could not be trained exactly. {remedy}"
        )


class RunVersionMismatch(InputError):
    """A run folder was written in a format that this version does not read."""


class DamagedRun(InputError):
    """The stored data of a run was changed or truncated after it was written."""


class RunLocked(InputError):
    """Another process is working on the same run folder."""


class StorageFull(PalaestraError):
    """A write failed because the disk (or a quota) is full; what was stored before is intact."""


class RunGone(PalaestraError):
    """The folder of a run was deleted or moved during the run, so nothing can be stored."""


class RunTakenOver(PalaestraError):
    """Another process works on the run by now, so this one may record nothing more."""


class CorruptCache(PalaestraError):
    """Cached model files do not match their recorded hash and could not be rebuilt."""


class TooManyFaults(PalaestraError):
    """Most episodes end in environment or infrastructure faults: the run would learn nothing."""


class WorkersUnavailable(PalaestraError):
    """Worker processes fail to start after all retries, so no environment can run."""

    exit_code = 2


class ClusterFailed(PalaestraError):
    """The processes of a run on a cluster die again and again, so it cannot go on."""


class EnvironmentFault(PalaestraError):
    """The environment failed (crash, hang, malformed data): an outcome of the episode, not a score.

    `kind` is one of `crash`, `hang`, `memory`, `rubbish`, `reset`, `step`, and `user`: a model that
    plays the environment's user did not keep to its part.
    """

    def __init__(self, kind: str, detail: str) -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"environment {kind}: {detail}")


class SharedFault(EnvironmentFault):
    """What the environments of a process share has failed, such as their browser.

    None of them can continue in this process, and which of them caused it is not known.
    """


class AgentFault(PalaestraError):
    """The agent did something that ends its episode as its own error (scored as a failure)."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"agent {kind}: {detail}")


class InfrastructureFault(PalaestraError):
    """Something outside agent and environment failed (e.g. a model server); there is no result."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"infrastructure {kind}: {detail}")


class RequestRefused(InfrastructureFault):
    """A server that answers other requests rejects this one: the request is at fault."""


class RankLost(InfrastructureFault):
    """A process that learns with others died, was frozen, or failed; it moved no weights."""

    def __init__(self, rank: int, host: str, detail: str) -> None:
        self.rank, self.host = rank, host
        super().__init__("learner ranks", f"rank {rank} ({host}) {detail}")


class ContextTooLong(PalaestraError):
    """A prompt fills the model's context; ends the episode as truncated(context)."""


class SessionOver(PalaestraError):
    """Raised into an agent that continues after its episode has ended; ends `run` cleanly."""


class ReplayMismatch(PalaestraError):
    """The record of an interrupted episode differs from its replay."""
