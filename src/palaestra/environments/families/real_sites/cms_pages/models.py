"""Articles, and the front page that lists them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from wagtail.admin.panels import FieldPanel
from wagtail.fields import RichTextField
from wagtail.models import Page


class FrontPage(Page):
    """The paper's first page: its articles, the newest first."""

    template = "cms_pages/front_page.html"
    subpage_types: ClassVar = ["cms_pages.Section"]


class Section(Page):
    """A section of the paper."""

    template = "cms_pages/section.html"
    subpage_types: ClassVar = ["cms_pages.Article"]


class Article(Page):
    """An article."""

    template = "cms_pages/article.html"
    author = models.CharField(max_length=80, blank=True)
    intro = models.CharField(max_length=250, blank=True)
    body = RichTextField(blank=True)
    content_panels: ClassVar[list[Any]] = [
        *Page.content_panels,
        FieldPanel("author"),
        FieldPanel("intro"),
        FieldPanel("body"),
    ]
    subpage_types: ClassVar[list[str]] = []
