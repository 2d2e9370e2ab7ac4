"""JSON Schema (draft 2020-12) of every record, made from the record types, so that the files cannot drift from the code.

``python -m leadline.contracts.schemas docs/schemas`` writes them. The schemas allow fields that they do not name, as readers
do (evolution within a major version only adds), though the strict decoder refuses them on its fast path.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import msgspec

from leadline.contracts.events import Ack, Checkpoint, Round, SessionEnd, SessionStart
from leadline.contracts.manual import Manual, Silence
from leadline.contracts.orders import Command, Heartbeat, Tick, Violation
from leadline.contracts.session_state import SessionState

__all__ = ["RECORDS", "file_name", "schema_of", "write_schemas"]

RECORDS: Final[tuple[type[msgspec.Struct], ...]] = (
    SessionStart,
    Round,
    Checkpoint,
    Ack,
    SessionEnd,
    Tick,
    Manual,
    Violation,
    Command,
    Heartbeat,
    SessionState,
    Silence,
)
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of one record type. ``schema`` may name any minor of the record's major version."""
    tag = _tag(record)
    (root,), components = msgspec.json.schema_components([record], ref_template="#/$defs/{name}")
    kinds = _kinds(record)
    for name, component in components.items():
        _open(component, kinds.get(name))
    body = components.pop(root["$ref"].rsplit("/", 1)[1])
    name, _, major = tag.partition("/")
    # The session state is the monitor's own and is read back exactly as written; all others follow the tolerant reader.
    any_minor = rf"^{re.escape(name)}/{major}(\.[0-9]{{1,6}})?$"
    body["properties"]["schema"] = {"const": tag} if record is SessionState else {"type": "string", "pattern": any_minor}
    made = {"$schema": _DIALECT, "$id": f"urn:{name.replace('.', ':')}:{major}", **body, "title": tag}
    if components:
        made["$defs"] = components
    return made


def file_name(record: type[msgspec.Struct]) -> str:
    """``leadline.round-1.json`` for ``leadline.round/1``."""
    return _tag(record).replace("/", "-") + ".json"


def write_schemas(folder: Path) -> list[Path]:
    """Write a file for each record; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for record in RECORDS:
        path = folder / file_name(record)
        path.write_text(json.dumps(schema_of(record), indent=2, sort_keys=False) + "\n", encoding="utf-8")
        written.append(path)
    return written


def _tag(record: type[msgspec.Struct]) -> str:
    tag = record.__struct_config__.tag
    assert isinstance(tag, str), "every record names its schema"
    return tag


def _open(component: dict[str, Any], kind: type[msgspec.Struct] | None) -> None:
    """Allow further fields, and carry over what the source says about each field."""
    component.pop("additionalProperties", None)
    if "description" in component:
        component["description"] = _plain(component["description"])
    for field, text in _field_docs(kind).items() if kind is not None else ():
        property_ = component.get("properties", {}).get(field)
        if property_ is not None:
            property_["description"] = text


def _kinds(record: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """All record types nested in ``record``, by name."""
    found: dict[str, type[msgspec.Struct]] = {}

    def visit(info: msgspec.inspect.Type) -> None:
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls.__name__ in found:
                return
            found[info.cls.__name__] = info.cls
            for field in info.fields:
                visit(field.type)
        elif isinstance(info, msgspec.inspect.UnionType):
            for one in info.types:
                visit(one)
        elif isinstance(info, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
            visit(info.item_type)
        elif isinstance(info, msgspec.inspect.DictType):
            visit(info.value_type)
        elif isinstance(info, msgspec.inspect.Metadata):
            visit(info.type)

    visit(msgspec.inspect.type_info(record))
    return found


def _field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The string below each field, for the class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not issubclass(base, msgspec.Struct) or base.__module__.startswith("msgspec"):
            continue
        (class_,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(class_, ast.ClassDef)
        for field, after in zip(class_.body, class_.body[1:], strict=False):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                docs[field.target.id] = _plain(after.value.value)
    return docs


def _plain(doc: str) -> str:
    """A docstring without its markup, on one line."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", doc)
    return " ".join(text.replace("``", "`").split())


if __name__ == "__main__":
    for made in write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas")):
        sys.stdout.write(f"{made}\n")
