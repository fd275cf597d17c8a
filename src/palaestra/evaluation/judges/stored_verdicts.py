"""Stored verdicts: documents of the run, beside its episodes, which never change.

judges                     names of the judges used or calibrated in this run
judge/NAME/calibration     the judge's calibration (`Calibration.as_json`, and its short form)
judge/NAME/verdict/KEY     its verdict on one episode
judge/NAME/verdicts        episode's key to verdict, as earlier versions stored them; read-only

Names of documents are those of the database; nothing else is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from palaestra.core.episode import Key
from palaestra.evaluation.judges.calibration import Calibration
from palaestra.evaluation.judges.verdict import Verdict


class Documents(Protocol):
    """The part of a run's database that verdicts need."""

    def get(self, name: str) -> Any: ...
    def put(self, name: str, document: Any) -> None: ...
    def documents(self, prefix: str) -> dict[str, Any]: ...


def judges(documents: Documents) -> list[str]:
    """Return the judges of the run, in the order of their first use."""
    return list(documents.get("judges") or ())


def calibration(documents: Documents, judge: str) -> dict[str, Any] | None:
    """Return the stored calibration of a judge; None if there is none."""
    found: dict[str, Any] | None = documents.get(f"judge/{judge}/calibration")
    return found


def store_calibration(documents: Documents, found: Calibration) -> None:
    """Store a calibration; replace an earlier one of a judge with that name."""
    document = {**found.as_json(), "short": found.short()}
    documents.put(f"judge/{found.judge}/calibration", document)
    _remember(documents, found.judge)


def verdicts(documents: Documents, judge: str) -> dict[str, dict[str, Any]]:
    """Return the printed key of each episode to the judge's verdict on it."""
    earlier = documents.get(f"judge/{judge}/verdicts") or {}
    return {**earlier, **documents.documents(f"judge/{judge}/verdict/")}


def verdicts_on(documents: Documents, key: Key) -> list[dict[str, Any]]:
    """Return each judge's verdict on one episode; those of earlier versions are left out."""
    found = (documents.get(f"judge/{judge}/verdict/{key}") for judge in judges(documents))
    return [verdict for verdict in found if verdict is not None]


def store_verdicts(documents: Documents, judge: str, found: Mapping[Key, Verdict]) -> None:
    """Store verdicts of one judge; replace earlier ones on the same episodes."""
    for key, verdict in found.items():
        documents.put(f"judge/{judge}/verdict/{key}", verdict.as_json())
    _remember(documents, judge)


def _remember(documents: Documents, judge: str) -> None:
    known = judges(documents)
    if judge not in known:
        documents.put("judges", [*known, judge])
