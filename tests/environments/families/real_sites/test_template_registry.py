"""Names of environments say which templates they have, and in which worlds."""

from __future__ import annotations

import pytest

from palaestra.core.errors import InputError
from palaestra.environments.families.real_sites.application import PLAIN, Variant
from palaestra.environments.families.real_sites.site_world import LANGUAGES, application
from palaestra.environments.families.real_sites.template_registry import (
    chosen,
    names,
    variant_of,
)


def test_a_variant_has_the_templates_of_the_plain_name() -> None:
    for name, variant in (
        ("code-easy", PLAIN),
        ("code-easy-large", Variant(size="large")),
        ("code:attach-log-pt_BR", Variant(language="pt_BR")),
    ):
        assert name in names()
        assert variant_of(name) == variant
    assert chosen("code-easy-de") == chosen("code-easy")
    assert chosen("code:attach-log-large") == chosen("code:attach-log")
    assert len(chosen("code:attach-log")) == 1


def test_names_are_unique_and_none_is_empty() -> None:
    assert len({*names()}) == len(names())
    assert all(chosen(name) for name in names())


def test_only_some_sites_come_in_variants() -> None:
    assert "shop-easy-large" in names()
    assert not {"forum-easy-large", "shop-easy-de", "world-easy-large"} & {*names()}
    with pytest.raises(InputError, match="'forum' has no large worlds; shop and code have"):
        application("forum", Variant(size="large"))
    with pytest.raises(InputError, match="'shop' has no pages in the language 'de'"):
        application("shop", Variant(language=LANGUAGES["code"][0]))
