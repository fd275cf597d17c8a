"""What people have and did in each app before a world starts, one function per app.

Each app is drawn from a seed of its own, so that one app's history is the same whichever other apps
are there. They are written in the order below: orders and journeys are paid by cards of the bank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from palaestra.environments.families.apps.histories import (
    brand,
    keeping,
    spending,
    talking,
    working,
)
from palaestra.environments.families.apps.histories.scene import Scene

HISTORIES: Mapping[str, Callable[[Scene], None]] = {
    "chat": talking.chat,
    "notes": keeping.notes,
    "files": keeping.files,
    "documents": keeping.documents,
    "payments": spending.payments,
    "shop": spending.shop,
    "travel": spending.travel,
    "tracker": working.tracker,
    "wiki": working.wiki,
    "repository": working.repository,
    "knowledge": brand.knowledge,
}
"""By the app's name."""
