"""Which versions of its environments a run was judged by; results of different ones do not compare.

A run records them when it begins (`Spec.version`). Runs of before this was recorded have none, and
are compared as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaestra.core.errors import InputError

DOCUMENT = "environment_versions"
"""The document of a run with the version of each environment, by its id."""


def refuse_other_versions(runs: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    """Raise InputError if two runs were judged by different versions of an environment.

    Args:
        runs: the name of each, as users spell it, and its versions by environment.
    """
    first: dict[str, tuple[str, str]] = {}
    for name, versions in runs:
        for environment, version in versions.items():
            other, known = first.setdefault(environment, (name, version))
            if version != known:
                old = other if (len(known), known) < (len(version), version) else name
                raise InputError(
                    f"{other} was judged by version {known} of '{environment}' and {name} by "
                    f"version {version}, and their results do not compare; judge the older one "
                    f"again: palaestra rescore {old.partition(':')[0]} --run NEW."
                )
