"""Protobuf messages become plain values for `--json`: every field present, numbers as numbers, enums by name.

JSON has no NaN and no infinities: they are the texts "NaN", "Infinity" and "-Infinity", as in protobuf's own mapping.
"""

import math
from typing import Any

from google.protobuf.message import Message


def to_dict(message: Message) -> dict[str, Any]:
    """Return a message with all its fields; null stands for a message that is absent."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        return {key: _value(nested.fields_by_name["value"], value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_value(field, item) for item in value]
    if nested is not None and not message.HasField(field.name):
        return None
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_dict(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
