"""People as users of a Django application."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.real_sites.application import BEGIN

PASSWORD = "blue-kettle-42"  # of everybody
SALT = "0123456789abcdefghijkl"  # as long as Django wants it, else it makes another at a login


def made_users(people: Sequence[Person]) -> list[Any]:
    """Make a user of each person, with the same ids; the first may do everything."""
    from django.contrib.auth.hashers import make_password
    from django.contrib.auth.models import User

    word = make_password(PASSWORD, SALT)
    return User.objects.bulk_create(
        User(
            username=f"{one.first}.{one.surname}".lower(),
            email=one.email,
            first_name=one.first,
            last_name=one.surname,
            password=word,
            is_staff=one.id == 1,
            is_superuser=one.id == 1,
            date_joined=BEGIN - timedelta(days=400 + one.id),
        )
        for one in people
    )
