"""Finding and removing the fields that a newer writer added, so that an older reader can go on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import msgspec

__all__ = ["strip_unknown"]


class _Nested(NamedTuple):
    """A record type within a field: alone, in a list, or as the values of an object with free names."""

    kind: type[msgspec.Struct]
    by_name: bool = False


@cache
def _shape(kind: type[msgspec.Struct]) -> dict[str, _Nested | None]:
    """Field names of ``kind``, each with the record type nested in it, if any."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _nested(field.type) for field in info.fields}


def _nested(info: msgspec.inspect.Type) -> _Nested | None:
    if isinstance(info, msgspec.inspect.StructType):
        return _Nested(info.cls)
    if isinstance(info, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
        return _nested(info.item_type)
    if isinstance(info, msgspec.inspect.DictType):
        found = _nested(info.value_type)
        return None if found is None else _Nested(found.kind, by_name=True)
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
        value = raw.get(name)
        if nested is None or value is None:
            continue
        if isinstance(value, dict):
            items: Iterable[Any] = value.values() if nested.by_name else (value,)
        else:
            items = value if isinstance(value, list) else ()
        for item in items:
            if isinstance(item, dict):
                count += strip_unknown(item, nested.kind)
    return count
