"""Finding and removing the fields that a newer writer added, so that an older reader can go on."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

__all__ = ["strip_unknown"]


@cache
def _shape(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """Field names of ``kind``, each with the record type nested in it, if any."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _nested(field.type) for field in info.fields}


def _nested(info: msgspec.inspect.Type) -> type[msgspec.Struct] | None:
    if isinstance(info, msgspec.inspect.StructType):
        return info.cls
    if isinstance(info, msgspec.inspect.ListType):
        return _nested(info.item_type)
    if isinstance(info, msgspec.inspect.UnionType):
        return next((found for found in map(_nested, info.types) if found), None)
    return None


def strip_unknown(raw: dict[str, Any], kind: type[msgspec.Struct]) -> int:
    """Remove, in place and at every depth, what ``kind`` does not name; return how many fields that were."""
    shape = _shape(kind)
    tag = kind.__struct_config__.tag_field
    extra = [name for name in raw if name not in shape and name != tag]
    for name in extra:
        del raw[name]
    count = len(extra)
    for name, nested in shape.items():
        if nested is None:
            continue
        value = raw.get(name)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, dict):
                count += strip_unknown(item, nested)
    return count
