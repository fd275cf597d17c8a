"""What can be done with the knowledge of a brand: report two articles of which one should go."""

from __future__ import annotations

from typing import Literal

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

ARTICLE, REPORT = "knowledge.article", "knowledge.report"


@verb
def report_pair(
    call: Caller, article_id: int, other_id: int, kind: Literal["duplicate", "contradiction"]
) -> Row:
    """Report two articles that say the same, or that contradict each other, in any order.

    Returns:
        report_id: integer

    Raises:
        404: there is no such article
        409: the pair was reported already
    """
    if article_id == other_id:
        raise ApiError(422, "Name two different articles.")
    first, second = sorted((article_id, other_id))
    for id in (first, second):
        call.read(ARTICLE, id)
    if call.state.find(REPORT, owner=call.person, first_id=first, second_id=second):
        raise ApiError(409, "This pair was reported already.")
    row: Row = {"owner": call.person, "first_id": first, "second_id": second, "kind": kind}
    return {"report_id": call.state.insert(REPORT, row)}


VERBS = (report_pair,)
