"""The JSON schemas of core types: pydantic's validators and serializers.

A field `type` distinguishes the parts of a message; it belongs to their classes, not to their
objects. pydantic's default for a union would try each kind of part in turn, and could not
distinguish kinds with the same fields.

The bytes of an image are in base64 within it, or stored separately under its hash, once for equal
images.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cached_property
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator, core_schema

from palaestra.core.message import Image, Part

CONFIG = ConfigDict(ser_json_inf_nan="constants")
_CORE = core_schema.CoreConfig(ser_json_inf_nan="constants")
_KINDS: dict[type, str] = {kind: kind.type for kind in get_args(Part)}

Find = Callable[[str], bytes]
"""Returns the bytes of that hash; raises ValueError if they are missing."""


class Shape:
    """The reader and writer of lists of one type."""

    def __init__(self, kind: Any, external_images: bool, without: frozenset[str]) -> None:
        """Build it for `kind`.

        Args:
            kind: the type of the items.
            external_images: whether images' bytes are stored separately.
            without: the fields of an item that are not written.
        """
        self._schema = tagged(TypeAdapter(list[kind], config=CONFIG).core_schema, external_images)
        self._serializer = SchemaSerializer(_excluding(self._schema, kind, without), _CORE)

    def write(self, values: list[Any]) -> bytes:
        """Return the JSON of a list; raises ValueError for items that are not JSON."""
        return self._serializer.to_json(values, warnings="error")

    def read(self, text: str, find: Find | None = None) -> list[Any]:
        """Parse the JSON of a list; `find` returns the bytes of images.

        Raises:
            ValueError: it is the JSON of something else.
        """
        found: list[Any] = self._validator.validate_json(text, context=find)
        return found

    @cached_property
    def _validator(self) -> SchemaValidator:
        return SchemaValidator(self._schema, _CORE)


def _excluding(schema: Any, kind: Any, names: frozenset[str]) -> Any:
    """Return a schema in which fields of `kind` are not written.

    The `exclude` of a serializer's call has the same effect, and takes a fifth of the call's time.
    """
    if isinstance(schema, list):
        return [_excluding(item, kind, names) for item in schema]
    if not isinstance(schema, dict) or not names:
        return schema
    found = {name: _excluding(value, kind, names) for name, value in schema.items()}
    if found.get("type") == "dataclass" and found["cls"] is kind:
        fields = [
            field | {"serialization_exclude": True} if field["name"] in names else field
            for field in found["schema"]["fields"]
        ]
        found["schema"] = found["schema"] | {"fields": fields}
    return found


def tagged(schema: Any, external_images: bool) -> Any:
    """Return a pydantic schema in which parts of messages have their `type`."""
    if isinstance(schema, list):
        return [tagged(item, external_images) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: tagged(value, external_images) for name, value in schema.items()}
    if found.get("type") == "union" and len(found["choices"]) == len(_KINDS):
        choices = dict(zip(_KINDS.values(), found["choices"], strict=True))
        return core_schema.tagged_union_schema(choices, discriminator="type")
    if found.get("type") != "dataclass" or found["cls"] not in _KINDS:
        return found
    kind = core_schema.literal_schema([_KINDS[found["cls"]]])
    field = core_schema.computed_field("type", kind)
    found["schema"] = found["schema"] | {"computed_fields": [field]}
    return _image(found, external_images) if found["cls"] is Image else found


def _image(schema: dict[str, Any], external_images: bool) -> Any:
    """Return the schema of an image whose bytes are in base64, or stored separately."""
    *rest, data = schema["schema"]["fields"]
    if external_images:
        none = core_schema.with_default_schema(core_schema.bytes_schema(), default=b"")
        data = data | {"schema": none, "serialization_exclude": True}
    else:
        written = core_schema.plain_serializer_function_ser_schema(
            lambda data: b64encode(data).decode(), return_schema=core_schema.str_schema()
        )
        data = data | {
            "schema": core_schema.no_info_before_validator_function(
                _decoded, core_schema.bytes_schema(), serialization=written
            )
        }
    schema["schema"] = schema["schema"] | {"fields": [*rest, data]}
    if not external_images:
        return schema
    ref = schema.pop("ref", None)  # other schemas must refer to the validator as well
    return core_schema.with_info_after_validator_function(_filled, schema, ref=ref)


def _decoded(data: Any) -> bytes:
    return data if isinstance(data, bytes) else b64decode(data, validate=True)


def _filled(image: Image, info: core_schema.ValidationInfo[Find]) -> Image:
    """Return an image with its separately stored bytes."""
    data = info.context(image.sha256)
    if len(data) != image.size:
        raise ValueError(f"image {image.sha256} has {len(data)} bytes, not {image.size}")
    return Image(image.sha256, image.media_type, image.size, data)
