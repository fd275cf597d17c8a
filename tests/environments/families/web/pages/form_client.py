"""A browser without pictures or scripts: it opens pages, fills fields, and sends forms."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from palaestra.environments.families.web.pages.app_site import AppSite, Page
from palaestra.environments.families.web.pages.following import Fill, Open, Step
from palaestra.environments.families.web.pages.page_reader import PageReader


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
            sent = {name: text.replace("\n", "\r\n") for name, text in form.sent().items()}
            self._show(self.site.post(form.action, sent))
            return
        field = form.fields[step.field]
        assert field.kind != "choice" or step.text in field.options.values()
        field.value = step.text

    def _show(self, page: Page) -> None:
        if page.location:
            self.open(page.location)
            return
        self.page, self.read = page, PageReader(page.html)
