"""Sampled tokens as a page shows them: how each reads, how likely it was, what it earned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.visible import visible

if TYPE_CHECKING:
    from palaestra.core.model import Renderer
    from palaestra.store.run import RunFolder

Pieces = Callable[[Sequence[int]], list[str]]
"""Tokens as readable strings, one each."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a reply; its steps of colour are None where nothing is known."""

    text: str
    surprise: int | None  # 0 (certain) … 9 (hardly expected), by the sampler's probability
    doubt: int | None  # 0 (nothing else could come) … 9 (twenty words or more could), by entropy
    credit: str | None  # "n5" (worse than expected) … "z" … "p5" (better)
    version: int  # of the weights, 0 … 9: the last digit
    about: str  # its numbers, in words


def tokens_of(
    call: Call, texts: Sequence[str], advantages: Sequence[float], scale: float
) -> tuple[Token, ...]:
    """The sampled tokens of a call, with what is known of each."""
    versions = call.token_versions
    logprobs = call.logprobs if len(call.logprobs) == len(texts) else ()
    entropies = call.entropies if len(call.entropies) == len(texts) else ()
    credits = advantages if len(advantages) == len(texts) else ()
    found: list[Token] = []
    for i, text in enumerate(texts):
        about = []
        if logprobs:
            about.append(f"probability {_chance(logprobs[i]):.3f}, log {logprobs[i]:.3f}")
        if entropies:
            about.append(f"entropy {entropies[i]:.3f} nats")
        if credits:
            about.append(f"advantage {credits[i]:+.3f}")
        about.append(f"weights {versions[i]}")
        found.append(
            Token(
                text=visible(text).replace("\n", "⏎"),
                surprise=surprise(logprobs[i]) if logprobs else None,
                doubt=doubt(entropies[i]) if entropies else None,
                credit=credit_step(credits[i], scale) if credits else None,
                version=versions[i] % 10,
                about=", ".join(about),
            )
        )
    return tuple(found)


def pieces_of(run: RunFolder) -> Pieces:
    """How tokens of a run read: by its tokenizer, else as their numbers."""
    folder = _tokenizer(run)
    renderer = _renderer(folder) if folder else None
    return renderer.pieces if renderer else numbers


def surprise(logprob: float) -> int | None:
    """The step of a scale of ten: 0 for a token that was certain, 9 for one below 10 %."""
    if math.isnan(logprob):
        return None
    return min(9, int(10 * (1 - _chance(logprob))))


def doubt(entropy: float) -> int | None:
    """The step of a scale of ten: 0 for a third of a nat or less, 9 for e³, twenty words' worth."""
    if math.isnan(entropy):
        return None
    return min(9, max(0, int(3 * entropy)))


def credit_step(advantage: float, scale: float) -> str:
    """The step of a scale of eleven, from "n5" to "p5"; "z" around zero."""
    if scale <= 0 or abs(advantage) < 1e-8 or math.isnan(advantage):
        return "z"
    size = min(5, max(1, math.ceil(5 * abs(advantage) / scale - 1e-9)))
    return f"{'p' if advantage > 0 else 'n'}{size}"


def numbers(tokens: Sequence[int]) -> list[str]:
    """Tokens as they are where no tokenizer is known."""
    return [f"{token} " for token in tokens]


# ── details ──────────────────────────────────────────────────────────────────


def _chance(logprob: float) -> float:
    """A probability, also where rounding has put its logarithm above zero."""
    return math.exp(min(0.0, logprob))


@lru_cache(maxsize=4)
def _renderer(folder: Path) -> Renderer | None:
    from palaestra.models.registry import renderer_of

    try:
        return renderer_of(folder)
    except InputError:
        return None


def _tokenizer(run: RunFolder) -> Path | None:
    """The folder of the tokenizer that the run used, where it is still there."""
    for folder in (run.path / "final", run.path / "vocabulary"):
        if (folder / "tokenizer.json").is_file():
            return folder
    model = (run.database.get("recipe") or {}).get("model")
    name = model.get("name") if isinstance(model, dict) else model
    if not isinstance(name, str):
        return None
    for folder in (Path(name) / "final", Path(name)):
        if (folder / "tokenizer.json").is_file():
            return folder
    return _ready(name)


@lru_cache(maxsize=16)
def _ready(name: str) -> Path | None:
    """The folder of a named model; remembered, as it is checked by reading it."""
    from palaestra.models.weights import ready

    try:
        return ready(name)
    except InputError:  # the expert, a remote model, a folder that has gone
        return None
