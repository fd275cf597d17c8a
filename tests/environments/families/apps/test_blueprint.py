"""A blueprint that contradicts itself is refused, and the message names the line."""

from __future__ import annotations

import pytest

from palaestra.core.errors import InputError
from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.blueprint import Column, parse, refusal
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.stock import stock_app

TEXT = """\
app = "shop"
about = "Things to buy."

[entities.item]
about = "A thing."
owner = "owner"
readers = ["buyer"]
search = ["name"]
unique = [["name"]]
moves.state = {new = ["sold"]}
fields.owner = {type = "person", by = "service"}
fields.buyer = "email"
fields.name = {type = "text", most = 20, default = "a thing"}
fields.state = {type = "choice", choices = ["new", "sold"]}
fields.price = {type = "money", least = 1, most = 9}
fields.parent_id = {type = "integer", refers = "item"}

[entities.note]
about = "A note that everybody reads."
public = true
endpoints = ["list", "show"]
fields.words = "text"
"""

CONTRADICTIONS = {
    "unknown key of the app": ('buy."', 'buy."\ncolour = "red"', 3, "colour"),
    "missing key of the app": ('about = "Things to buy."', "", 1, "about: Field required"),
    "unknown key of an entity": ('about = "A thing."', 'aboot = "A"', 4, "about: Field required"),
    "unknown key of a field": ("by =", "buy =", 11, "buy"),
    "unknown type": ('fields.words = "text"', 'fields.words = "string"', 22, "type"),
    "name of an app": ('"shop"', '"My shop"', 1, "app: String should match"),
    "name of an entity": ("entities.note", "entities.Note", 18, "'Note' is no name for an entity"),
    "name of a field": ("fields.words", "fields.Words", 22, "rename it"),
    "reserved name": ("fields.words", "fields.page", 22, "'page' of entity 'note' has a name"),
    "owner unknown": ('owner = "owner"', 'owner = "boss"', 4, "names the field 'boss' in `owner`"),
    "owner no person": ('owner = "owner"', 'owner = "name"', 4, "must have the type 'person'"),
    "owner set by people": (', by = "service"', "", 4, "lets people set its owner"),
    "nobody reads": ("public = true", "", 18, "nobody could read it"),
    "reader unknown": ('["buyer"]', '["seller"]', 4, "'seller' in `readers`"),
    "reader no person": ('["buyer"]', '["price"]', 4, "lets 'price' read it"),
    "search unknown": ('search = ["name"]', 'search = ["nam"]', 4, "'nam' in `search`"),
    "search a number": ('search = ["name"]', 'search = ["price"]', 4, "which is no text"),
    "search in nothing": ('["list", "show"]', '["search"]', 18, "no fields in `search`"),
    "unique unknown": ('[["name"]]', '[["code"]]', 4, "'code' in `unique`"),
    "moves unknown": ("moves.state", "moves.stage", 4, "'stage' in `moves`"),
    "move to no choice": ('["sold"]}', '["lost"]}', 4, "from or to 'lost'"),
    "choice without choices": ('fields.words = "text"', 'fields.words = "choice"', 22, "together"),
    "choices without choice": ('"text", most', '"text", choices = ["a"], most', 13, "together"),
    "reference of a text": ('"integer", refers', '"text", refers', 16, "the type 'integer'"),
    "reference to nothing": ('refers = "item"', 'refers = "itm"', 16, "choose one of item, note"),
    "least above most": ("least = 1, most = 9", "least = 9, most = 1", 15, "above its most"),
    "default of a wrong type": ('default = "a thing"', "default = 3", 13, "must be a text"),
    "default too long": ("most = 20", "most = 3", 13, "at most 3 characters"),
    "fixed and set by the service": ('by = "service"', 'by = "service", fixed = true', 11, "fixed"),
    "limit of 0": ("public = true", "public = true\nmost = 0", 21, "greater than 0"),
}


def test_the_text_itself_is_a_blueprint() -> None:
    assert parse(TEXT).app == "shop"


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_is_refused_and_its_line_named(case: str) -> None:
    old, new, line, reason = CONTRADICTIONS[case]
    assert TEXT.count(old) == 1
    with pytest.raises(InputError) as caught:
        parse(TEXT.replace(old, new), "shop.toml")
    assert str(caught.value).startswith(f"shop.toml, line {line}: ")
    assert reason in str(caught.value)


def test_what_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(InputError, match=r"shop.toml is not valid TOML: .*line 2"):
        parse('app = "shop"\nabout = \n', "shop.toml")


def test_an_app_without_entities_is_refused() -> None:
    with pytest.raises(InputError, match="entities"):
        parse('app = "shop"\nabout = "Empty."\n')
    with pytest.raises(InputError, match="entities"):
        parse('app = "shop"\nabout = "Empty."\nentities = {}\n')


def test_fields_have_defaults() -> None:
    item = parse(TEXT).entities["item"]
    assert item.fields["buyer"] == Column(type="email")
    column = item.fields["name"]
    assert (column.by, column.fixed, column.free, column.least) == ("person", False, False, None)
    assert item.endpoints == ("list", "search", "show", "create", "update", "delete")
    assert item.most is None and not item.public
    assert list(item.arguments()) == ["buyer", "name", "state", "price", "parent_id"]


def test_apps_have_defaults() -> None:
    blueprint = parse(TEXT)
    assert (blueprint.version, blueprint.private, blueprint.changes_per_minute) == (1, True, None)
    assert blueprint.references == [("item", "parent_id", "shop.item")]


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        (Column(type="text", least=2, most=3), ["ab", "abc"], ["a", "abcd", 1, None]),
        (Column(type="text"), ["", "x" * 10_000], ["x" * 10_001]),
        (Column(type="email"), ["a@b.c"], ["a@b", "a b@c.d", "a@b.c\n", ""]),
        (Column(type="phone"), ["555-0134", "+49 1234"], ["12", "call me", "٣٣٣-٣٣٣٣"]),
        (Column(type="date"), ["2024-02-29"], ["2026-02-29", "2026-1-1", "2026-01-01 10:00"]),
        (Column(type="time"), ["2026-03-02 09:00"], ["2026-03-02", "2026-03-02 24:01"]),
        (Column(type="integer", least=1, most=3), [1, 3], [0, 4, 1.0, True, "1"]),
        (Column(type="integer"), [-(10**11)], [10**12, -(10**12)]),
        (Column(type="money", least=0), [0, 1.25, 3], [-0.01, 1.255, True, "1", float("nan")]),
        (Column(type="boolean"), [True, False], [0, 1, "true", None]),
        (Column(type="choice", choices=("a", "b")), ["a"], ["c", "A", 1]),
        (Column(type="person"), [1], ["1", 1.5, True]),
    ],
    ids=lambda value: value.type if isinstance(value, Column) else "",
)
def test_fields_take_what_has_their_form(
    column: Column, good: list[object], bad: list[object]
) -> None:
    assert [refusal(column, value) for value in good] == [None] * len(good)
    assert [value for value in bad if refusal(column, value) is None] == []


# ── apps and suites ──────────────────────────────────────────────────────────


def test_a_verb_with_the_name_of_an_endpoint_is_refused() -> None:
    def show_item(call: object) -> None:
        """Show it."""

    with pytest.raises(InputError, match="two APIs named 'show_item'"):
        _ = App(parse(TEXT), (verb(show_item),)).apis


def test_endpoints_follow_from_the_blueprint() -> None:
    assert list(App(parse(TEXT)).apis) == [
        *(
            f"{way}_item{'s' * (way in ('list', 'search'))}"
            for way in ("list", "search", "show", "create", "update", "delete")
        ),
        "list_notes",
        "show_note",
        "login",
    ]


def test_two_apps_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="same name"):
        Suite.of([App(parse(TEXT)), App(parse(TEXT))])


def test_a_reference_to_an_app_that_is_missing_is_refused() -> None:
    text = TEXT.replace('refers = "item"', 'refers = "contacts.contact"')
    with pytest.raises(InputError, match=r"'parent_id' of 'shop.item' refers to 'contacts"):
        Suite.of([App(parse(text))])
    Suite.of([App(parse(text)), stock_app("contacts")])
