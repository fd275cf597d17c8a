"""`palaestra app` prints what an app offers, and refuses a blueprint that contradicts itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from palaestra.cli.app_pages import _application, _site
from palaestra.cli.main import main
from palaestra.environments.families.apps.compiler.openapi import documentation
from palaestra.environments.families.apps.generated import blueprint_text, generated_app
from palaestra.environments.families.apps.stock import stock_app, stock_suite


def test_it_prints_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "bank"]) == 0
    assert capsys.readouterr().out == documentation(stock_app("bank")) + "\n"


def test_it_prints_an_openapi_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "generated:3", "--openapi"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["info"]["title"] == generated_app(3).name


def test_it_reads_a_blueprint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shelter.toml"
    file.write_text(blueprint_text(3))
    assert main(["app", str(file)]) == 0
    assert capsys.readouterr().out == documentation(generated_app(3)) + "\n"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("fields.corner", "fields.page"), "shelter.toml, line "),
        (('fields.rescued = "date"', 'fields.rescued = "day"'), "entities.cat.fields.rescued.type"),
        (
            ('"date"', '{type = "integer", refers = "vets.vet"}'),
            "refers to 'vets.vet', which no app has",
        ),
    ],
)
def test_it_refuses_a_blueprint_that_contradicts_itself(
    change: tuple[str, str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shelter.toml"
    file.write_text(blueprint_text(3).replace(*change))
    assert main(["app", str(file)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bnak", "Did you mean 'bank'?"),
        ("generated:x", "'x' is no seed"),
        ("missing.toml", "'missing.toml' cannot be read"),
    ],
)
def test_it_refuses_what_is_not_there(
    name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", name]) == 2
    assert says in capsys.readouterr().err


def test_its_pages_are_used_by_a_person() -> None:
    app = stock_app("contacts")
    with TestClient(_application(_site(app, stock_suite(), 3))) as browser:
        assert "Contacts" in browser.get("/").text
        made = {"name": "Ada & Co", "email": "ada@example.com", "relation": "friend"}
        page = browser.post("/create_contact", data=made)
        assert page.status_code == 200 and "Ada &amp; Co" in page.text
        again = browser.post("/create_contact", data=made)
        assert again.status_code == 409 and "with the same email" in again.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--seed", "3"], "--seed is for --web"),
        (["--port", "8000"], "--port is for --web"),
        (["--web", "--port", "99999"], "There is no port 99999"),
    ],
)
def test_it_refuses_options_that_do_nothing(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "bank", *options]) == 2
    assert says in capsys.readouterr().err
