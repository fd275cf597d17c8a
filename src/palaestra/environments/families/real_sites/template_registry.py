"""All templates: importing this module defines them, in the order of the modules."""

from __future__ import annotations

from palaestra.environments.families.real_sites import shop_tasks
from palaestra.environments.families.real_sites.task_template import (
    LEVELS,
    TEMPLATES,
    TaskTemplate,
)

MODULES = (shop_tasks,)


def chosen(name: str) -> tuple[TaskTemplate, ...]:
    """Return the templates of an environment: of a level (`shop-easy`), or one (`shop:NAME`)."""
    group, _, alone = name.partition(":")
    if alone:
        return (TEMPLATES[alone],)
    group, _, level = name.rpartition("-")
    return tuple(one for one in TEMPLATES.values() if (one.group, one.level) == (group, level))


def names() -> list[str]:
    """Return the names of all environments."""
    groups = dict.fromkeys(one.group for one in TEMPLATES.values())
    levels = [f"{group}-{level}" for group in groups for level in LEVELS]
    single = [f"{one.group}:{one.name}" for one in TEMPLATES.values()]
    return [name for name in levels if chosen(name)] + single
