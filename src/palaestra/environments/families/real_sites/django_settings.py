"""The configuration of Django that the applications share."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from functools import cache
from typing import Any

from palaestra.core.errors import InputError
from palaestra.environments.families.real_sites import django_clock

HERE = "palaestra.environments.families.real_sites"
FORUM = (
    "forum", "forum_conversation", "forum_conversation.forum_attachments",
    "forum_conversation.forum_polls", "forum_feeds", "forum_moderation", "forum_search",
    "forum_tracking", "forum_member", "forum_permission",
)  # fmt: skip
CMS = (
    "contrib.forms", "contrib.redirects", "embeds", "sites", "users", "snippets", "documents",
    "images", "search", "admin",
)  # fmt: skip
CONTEXT = (
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
    "oscar.apps.search.context_processors.search_form",
    "oscar.apps.checkout.context_processors.checkout",
    "oscar.apps.communication.notifications.context_processors.notifications",
    "oscar.core.context_processors.metadata",
    "machina.core.context_processors.metadata",
)
MIDDLEWARE = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
)
"""What the requests of all sites pass through."""


@cache
def configure() -> None:
    """Configure Django in this process, and load the applications; once.

    Raises:
        InputError: other code of this process has configured it already.
    """
    import django
    from django.conf import settings

    if settings.configured:
        raise InputError(
            "Django is configured in this process already, for other code; run the sites in a "
            "process of their own."
        )
    django_clock.install()
    settings.configure(**_settings())
    logging.getLogger("django").addHandler(logging.NullHandler())  # a page says what went wrong
    django.setup()
    django_clock.install_in_applications()


class _NoMigrations(MutableMapping[str, Any]):
    """Says of every application that it has no migrations: tables are made from its models."""

    def __getitem__(self, key: str) -> None:
        return None

    def __setitem__(self, key: str, value: Any) -> None: ...

    def __delitem__(self, key: str) -> None: ...

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, key: object) -> bool:
        return True


def _settings() -> dict[str, Any]:
    import oscar
    from machina import MACHINA_MAIN_STATIC_DIR, MACHINA_MAIN_TEMPLATE_DIR
    from oscar import defaults

    shop = {name: value for name, value in vars(defaults).items() if name.startswith("OSCAR")}
    orders = {
        "Pending": ("Being processed", "Cancelled"),
        "Being processed": ("Complete", "Cancelled"),
        "Complete": (),
        "Cancelled": (),
    }
    shop |= {
        "OSCAR_SHOP_NAME": "Corner Shop",
        "OSCAR_DEFAULT_CURRENCY": "EUR",
        "OSCAR_INITIAL_ORDER_STATUS": "Pending",
        "OSCAR_INITIAL_LINE_STATUS": "Pending",
        "OSCAR_ORDER_STATUS_PIPELINE": orders,
        "OSCAR_LINE_STATUS_PIPELINE": orders,
        "OSCAR_THUMBNAILER": f"{HERE}.media.WholePictures",
        "OSCAR_EAGER_ALERTS": False,
    }
    forum = {
        "MACHINA_FORUM_NAME": "Neighbours",
        "MACHINA_BASE_TEMPLATE_NAME": "_base.html",
        "MACHINA_MARKUP_LANGUAGE": None,
        "MACHINA_MARKUP_WIDGET": None,
    }
    cms = {
        "WAGTAIL_SITE_NAME": "Town Paper",
        "WAGTAILADMIN_BASE_URL": "http://cms.example",
        "WAGTAIL_ENABLE_UPDATE_CHECK": False,
        "WAGTAIL_ENABLE_WHATS_NEW_BANNER": False,
        "WAGTAIL_GRAVATAR_PROVIDER_URL": None,
        "WAGTAILSEARCH_BACKENDS": {
            "default": {"BACKEND": "modelsearch.backends.database.fallback"}
        },
    }
    return {
        **shop,
        **forum,
        **cms,
        "SECRET_KEY": "of a world without a network",
        "ALLOWED_HOSTS": ["*"],
        "USE_TZ": True,
        "TIME_ZONE": "UTC",
        "SITE_ID": 1,
        "ROOT_URLCONF": (),  # each site has its own
        "LOGIN_URL": "/accounts/login/",
        "LOGIN_REDIRECT_URL": "/",
        "AUTHENTICATION_BACKENDS": [
            "oscar.apps.customer.auth_backends.EmailBackend",
            "django.contrib.auth.backends.ModelBackend",
        ],
        # The hash of a password costs a tenth of a second by default, and is no secret here.
        "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
        "MIGRATION_MODULES": _NoMigrations(),
        "CACHES": {
            name: {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}
            for name in ("default", "machina_attachments", "renditions")
        },
        "STORAGES": {
            "default": {"BACKEND": f"{HERE}.media.DatabaseStorage"},
            "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
        },
        "STATIC_URL": "/static/",
        "STATICFILES_DIRS": [MACHINA_MAIN_STATIC_DIR],
        "MEDIA_URL": "/media/",
        "EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend",
        "HAYSTACK_CONNECTIONS": {
            "default": {"ENGINE": f"{HERE}.database_search.DatabaseSearchEngine"}
        },
        "LOGGING_CONFIG": None,
        "INSTALLED_APPS": [
            *oscar.INSTALLED_APPS,
            "mptt",
            "machina",
            *(f"machina.apps.{name}" for name in FORUM),
            f"{HERE}.cms_pages",
            *(f"wagtail.{name}" for name in CMS),
            "wagtail",
            "modelcluster",
            "taggit",
        ],
        "TEMPLATES": [
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "DIRS": [MACHINA_MAIN_TEMPLATE_DIR],
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": CONTEXT},
            }
        ],
    }
