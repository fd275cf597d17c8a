"""All templates: importing this module defines them, in the order of the modules."""

from __future__ import annotations

import re

from palaestra.environments.families.real_sites import (
    cms_tasks,
    code_plan_tasks,
    code_source_tasks,
    code_tasks,
    forum_tasks,
    shop_dashboard_tasks,
    shop_tasks,
)
from palaestra.environments.families.real_sites.application import PLAIN, Variant
from palaestra.environments.families.real_sites.atlas import (
    encyclopedia_tasks,
    hop_tasks,
    look_tasks,
    map_tasks,
    talk_tasks,
)
from palaestra.environments.families.real_sites.site_world import LANGUAGES, LARGE
from palaestra.environments.families.real_sites.task_template import (
    LEVELS,
    TEMPLATES,
    TaskTemplate,
)

MODULES = (
    shop_tasks,
    shop_dashboard_tasks,
    forum_tasks,
    cms_tasks,
    code_tasks,
    code_plan_tasks,
    code_source_tasks,
    encyclopedia_tasks,
    map_tasks,
    hop_tasks,
    look_tasks,
    talk_tasks,
)


VARIANTS = {"large": Variant(size="large")} | {
    language: Variant(language=language) for all in LANGUAGES.values() for language in all
}
"""By what stands at the end of an environment's name, after a dash."""


def variant_of(name: str) -> Variant:
    """Return the variant of an environment's worlds."""
    return VARIANTS.get(name.rpartition("-")[2], PLAIN)


def chosen(name: str) -> tuple[TaskTemplate, ...]:
    """Return the templates of an environment: of a level (`shop-easy`), a tag, or one alone."""
    if name.rpartition("-")[2] in VARIANTS:
        name = name.rpartition("-")[0]
    group, _, alone = name.partition(":")
    if alone in TEMPLATES:
        return (TEMPLATES[alone],)
    if alone:
        return tuple(one for one in TEMPLATES.values() if one.group == group and alone in one.tags)
    group, _, level = name.rpartition("-")
    return tuple(one for one in TEMPLATES.values() if (one.group, one.level) == (group, level))


def names() -> list[str]:
    """Return the names of all environments."""
    groups = dict.fromkeys(one.group for one in TEMPLATES.values())
    levels = [f"{group}-{level}" for group in groups for level in LEVELS]
    tags = dict.fromkeys(f"{one.group}:{tag}" for one in TEMPLATES.values() for tag in one.tags)
    single = [f"{one.group}:{one.name}" for one in TEMPLATES.values()]
    small = [*(name for name in levels if chosen(name)), *tags, *single]
    return small + [f"{name}-{suffix}" for name in small for suffix in _variants(name)]


def _variants(name: str) -> tuple[str, ...]:
    """Return what may stand after an environment's name."""
    group = re.split("[-:]", name)[0]
    return (*(("large",) if group in LARGE else ()), *LANGUAGES.get(group, ()))
