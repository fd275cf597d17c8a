"""Rotary positions as a `config.json` describes them, in its older and its newer words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from palaestra.models.local.architecture import Rotary, Scaling
from palaestra.models.local.config_keys import Keys


def read_rotary(
    keys: Keys,
    *,
    theta: float,
    local_theta: float | None,
    share: float,
    interleaved: bool,
    global_scaling: bool,
    longest: int,
    default: Mapping[str, Any],
    longrope: tuple[str, ...],
) -> tuple[Rotary, Rotary]:
    """Return the rotary positions of layers without a window, and of those with one.

    Args:
        keys: of the config.json.
        theta: the base if none is given.
        local_theta: that of layers with a window; None: the same.
        share: of a head's features that turn if none is given.
        interleaved: neighbours are pairs.
        global_scaling: layers with a window have no scaling unless it is given apart.
        longest: tokens of the longest context.
        default: the description if none is given.
        longrope: names of longrope.

    Raises:
        InputError: a scaling that is not known.
    """
    older = keys("rope_scaling") or {}
    newer = keys("rope_parameters") or {}
    found = older or newer or default
    theta, share = keys("rope_theta", theta), keys("partial_rotary_factor", share)
    local = keys("rope_local_base_freq", local_theta) if local_theta is not None else theta
    original = keys("original_max_position_embeddings")

    def rotary(data: Mapping[str, Any], base: float) -> Rotary:
        part = keys.under(data)
        shared = {"theta": part("rope_theta", base), "interleaved": interleaved}
        shared["share"] = part("partial_rotary_factor", share)
        read = Rotary(**shared, **_scaling(part, longest, original, longrope))
        part.finish()
        return read

    apart = {name: found[name] for name in ("full_attention", "sliding_attention") if name in found}
    if not apart:
        return rotary(found, theta), rotary({} if global_scaling else found, local)
    rest = keys.under({name: value for name, value in found.items() if name not in apart})
    rest.finish()
    return (
        rotary(apart.get("full_attention") or {}, theta),
        rotary(apart.get("sliding_attention") or {}, local),
    )


def _scaling(
    part: Keys, longest: int, original: int | None, longrope: tuple[str, ...]
) -> dict[str, Any]:
    """Return the arguments of `Rotary` that say how positions are scaled."""
    older = part("type")
    name = part("rope_type", older or "default")
    name = "longrope" if name in longrope else name
    if name not in list(Scaling):
        raise part.refusal(f"rotary positions of type '{name}'")
    found: dict[str, Any] = {"scaling": Scaling(name)}
    if name == "default":
        return found
    within = part("original_max_position_embeddings", longest)
    original = original or within
    found |= {"original": original, "factor": part("factor") or longest / original}
    match found["scaling"]:
        case Scaling.LLAMA3:
            found |= {"low": part.required("low_freq_factor")}
            found |= {"high": part.required("high_freq_factor")}
        case Scaling.YARN:
            found |= {"high": part("beta_fast") or 32.0, "low": part("beta_slow") or 1.0}
            found |= {"whole": part("truncate", True), "magnitude": _sharper(part, found["factor"])}
        case Scaling.LONGROPE:
            found |= {"short_factors": tuple(part.required("short_factor"))}
            found |= {"long_factors": tuple(part.required("long_factor"))}
            usual = math.sqrt(1 + max(0.0, math.log(found["factor"]) / math.log(original)))
            found |= {"magnitude": part("attention_factor", usual)}
    return found


def _sharper(part: Keys, factor: float) -> float:
    """Return yarn's magnitude."""

    def usual(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    over, under = part("mscale"), part("mscale_all_dim")
    ratio = usual(over) / usual(under) if over and under else usual(1.0)
    given: float = part("attention_factor", ratio)
    return given
