"""Sampled tokens as a page shows them: text, probability, entropy and advantage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.runtime.visible_text import visible

if TYPE_CHECKING:
    from palaestra.core.model import Renderer
    from palaestra.store.run_folder import RunFolder

TokenTexts = Callable[[Sequence[int]], list[str]]
"""Maps tokens to readable strings, one each."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a reply; its colour steps are None if unknown."""

    text: str
    surprise: int | None  # 0 (certain) … 9 (unlikely), by the sampler's probability
    doubt: int | None  # 0 (one possible token) … 9 (twenty or more), by entropy
    credit: str | None  # "n5" (worse than expected) … "z" … "p5" (better)
    version: int  # of the weights, 0 … 9: the last digit
    about: str  # its numbers as text


def tokens_of(
    call: Call, texts: Sequence[str], advantages: Sequence[float], scale: float
) -> tuple[Token, ...]:
    """Return the sampled tokens of a call with their numbers."""
    versions = call.token_versions
    logprobs = call.logprobs if len(call.logprobs) == len(texts) else ()
    entropies = call.entropies if len(call.entropies) == len(texts) else ()
    credits = list(advantages)
    for place in call.forced if len(advantages) + len(call.forced) == len(texts) else ():
        credits.insert(place, 0.0)
    credits = credits if len(credits) == len(texts) else []
    found: list[Token] = []
    for i, text in enumerate(texts):
        about = []
        if logprobs:
            about.append(f"probability {_probability(logprobs[i]):.3f}, log {logprobs[i]:.3f}")
        if entropies:
            about.append(f"entropy {entropies[i]:.3f} nats")
        if credits:
            about.append(f"advantage {credits[i]:+.3f}")
        if i in call.forced:
            about.append("forced: written by the engine, never trained")
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


def token_texts(run: RunFolder) -> TokenTexts:
    """Return the function from tokens to text: the run's tokenizer, else the tokens' numbers."""
    folder = _tokenizer(run)
    renderer = _renderer(folder) if folder else None
    return renderer.token_strings if renderer else numbers


def surprise(logprob: float) -> int | None:
    """Return a step from 0 to 9: 0 for a certain token, 9 for a probability below 10 %."""
    if math.isnan(logprob):
        return None
    return min(9, int(10 * (1 - _probability(logprob))))


def doubt(entropy: float) -> int | None:
    """Return a step from 0 to 9: 0 below a third of a nat, 9 from 3 nats (e³, twenty tokens)."""
    if math.isnan(entropy):
        return None
    return min(9, max(0, int(3 * entropy)))


def credit_step(advantage: float, scale: float) -> str:
    """Return one of eleven steps, from "n5" to "p5"; "z" around zero."""
    if scale <= 0 or abs(advantage) < 1e-8 or math.isnan(advantage):
        return "z"
    size = min(5, max(1, math.ceil(5 * abs(advantage) / scale - 1e-9)))
    return f"{'p' if advantage > 0 else 'n'}{size}"


def numbers(tokens: Sequence[int]) -> list[str]:
    """Return tokens as their numbers, for a run without a known tokenizer."""
    return [f"{token} " for token in tokens]


# ── details ──────────────────────────────────────────────────────────────────


def _probability(logprob: float) -> float:
    """Return the probability of a logarithm, which rounding may have put above zero."""
    return math.exp(min(0.0, logprob))


@lru_cache(maxsize=4)
def _renderer(folder: Path) -> Renderer | None:
    from palaestra.models.registry import renderer_of

    try:
        return renderer_of(folder)
    except InputError:
        return None


def _tokenizer(run: RunFolder) -> Path | None:
    """Return the folder of the run's tokenizer, if it still exists."""
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
    """Return the folder of a named model; cached, since checking it reads its files."""
    from palaestra.models.local.weights import ready

    try:
        return ready(name)
    except InputError:  # the expert, a remote model, a deleted folder
        return None
