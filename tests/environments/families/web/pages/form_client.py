"""A browser without pictures or scripts: it reads links and forms, fills fields, and sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlsplit

from palaestra.environments.families.web.pages.app_site import AppSite, Page
from palaestra.environments.families.web.pages.following import Fill, Open, Step


@dataclass
class Form:
    method: str
    action: str
    values: dict[str, str] = field(default_factory=dict)
    options: dict[str, set[str]] = field(default_factory=dict)
    boxes: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)


class Reader(HTMLParser):
    """The links, forms and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.text = ""
        self._area = self._select = ""
        self._style = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        match tag:
            case "a":
                self.links.append(given["href"])
            case "style":
                self._style = True
            case "form":
                self.forms.append(Form(given["method"], given["action"]))
            case "label":
                self.forms[-1].labels.add(given["for"])
            case "input" if given["type"] == "checkbox":
                self.forms[-1].boxes.add(given["name"])
                if "checked" in given:
                    self.forms[-1].values[given["name"]] = "on"
            case "input":
                self.forms[-1].values[given["name"]] = given.get("value", "")
            case "textarea":
                self._area = given["name"]
                self.forms[-1].values[self._area] = ""
            case "select":
                self._select = given["name"]
                self.forms[-1].options[self._select] = set()
            case "option":
                form = self.forms[-1]
                if "selected" in given or not form.options[self._select]:
                    form.values[self._select] = given["value"]
                form.options[self._select].add(given["value"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            values = self.forms[-1].values
            values[self._area] = values[self._area].removeprefix("\n").replace("\n", "\r\n")
            self._area = ""
        elif tag == "style":
            self._style = False

    def handle_data(self, data: str) -> None:
        if self._area:
            self.forms[-1].values[self._area] += data
        elif not self._style:
            self.text += data


class FormClient:
    """Somebody on the pages of one site."""

    def __init__(self, site: AppSite) -> None:
        self.site = site
        self.open("/")

    def open(self, path: str) -> None:
        parts = urlsplit(path)
        self._show(self.site.get(parts.path, dict(parse_qsl(parts.query))))

    def follow(self, step: Step) -> None:
        if isinstance(step, Open):
            self.open(step.path)
            return
        (form,) = (one for one in self.read.forms if one.method == "post")
        if not isinstance(step, Fill):
            self._show(self.site.post(form.action, form.values))
        elif step.field in form.boxes:
            form.values = {k: v for k, v in form.values.items() if k != step.field}
            form.values |= {step.field: "on"} if step.text else {}
        else:
            assert step.field in form.values, (step.field, form)
            assert step.text in form.options.get(step.field, {step.text})
            form.values[step.field] = step.text.replace("\n", "\r\n")

    def _show(self, page: Page) -> None:
        if page.location:
            self.open(page.location)
            return
        self.page, self.read = page, Reader(page.html)
