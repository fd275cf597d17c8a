"""All templates: importing this module defines them, in the order of the modules."""

from __future__ import annotations

import re

from palaestra.environments.families.real_sites import (
    cms_tasks,
    code_plan_tasks,
    code_source_tasks,
    code_tasks,
    forum_tasks,
    shop_tasks,
)
from palaestra.environments.families.real_sites.application import Size
from palaestra.environments.families.real_sites.atlas import (
    encyclopedia_tasks,
    hop_tasks,
    look_tasks,
    map_tasks,
    talk_tasks,
)
from palaestra.environments.families.real_sites.site_world import LARGE
from palaestra.environments.families.real_sites.task_template import (
    LEVELS,
    TEMPLATES,
    TaskTemplate,
)

MODULES = (
    shop_tasks,
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


IN_LARGE = "-large"  # at the end of an environment's name


def size_of(name: str) -> Size:
    """Return the size of an environment's worlds."""
    return "large" if name.endswith(IN_LARGE) else "small"


def chosen(name: str) -> tuple[TaskTemplate, ...]:
    """Return the templates of an environment: of a level (`shop-easy`), a tag, or one alone."""
    name = name.removesuffix(IN_LARGE)
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
    large = [f"{name}{IN_LARGE}" for name in small if re.split("[-:]", name)[0] in LARGE]
    return small + large
