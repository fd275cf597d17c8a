"""SQLite tables and indexes for blueprints."""

from __future__ import annotations

from collections.abc import Mapping

from palaestra.environments.families.apps.compiler.blueprint import Blueprint, Column

SQL_TYPES = {"integer": "INTEGER", "person": "INTEGER", "boolean": "INTEGER", "money": "REAL"}


def statements(blueprints: Mapping[str, Blueprint]) -> list[str]:
    """Return what creates the tables of all entities, with an index for owners and references.

    A table is named `app.entity`. Its column `id` counts up, and no id is given twice.
    """
    made = []
    for app, blueprint in blueprints.items():
        for name, entity in blueprint.entities.items():
            table = f"{app}.{name}"
            columns = ", ".join(
                f'"{field}" {SQL_TYPES.get(column.type, "TEXT")}'
                for field, column in entity.fields.items()
            )
            made.append(f'CREATE TABLE "{table}" (id INTEGER PRIMARY KEY, {columns}) STRICT')
            for field, column in entity.fields.items():
                if field == entity.owner or field in entity.readers or column.refers:
                    made.append(f'CREATE INDEX "{table}.{field}" ON "{table}" ("{field}")')
            for number, fields in enumerate(entity.unique):
                owned = (entity.owner, *fields) if entity.owner else fields
                inner = ", ".join(f'"{field}"' for field in owned)
                made.append(f'CREATE UNIQUE INDEX "{table}.unique{number}" ON "{table}" ({inner})')
    return made


def booleans(columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the columns whose stored numbers are booleans, which SQLite does not have."""
    return tuple(name for name, column in columns.items() if column.type == "boolean")
