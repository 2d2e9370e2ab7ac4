"""Writes ``docs/telemetry.md``: the hand-written part stays, the tables come from the list of names.

``python -m leadline.telemetry.document docs/telemetry.md``
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from leadline.telemetry import names
from leadline.telemetry.labels import LABELS

__all__ = ["MARK", "tables", "written"]

MARK: Final = "<!-- from here on written by python -m leadline.telemetry.document -->"


def written(page: str) -> str:
    """The page with its tables made anew. Raises ValueError where it has no mark."""
    head, mark, _ = page.partition(MARK)
    if not mark:
        raise ValueError(f"the page has no line {MARK!r}, after which the tables are to stand")
    return f"{head}{MARK}\n\n{tables()}"


def tables() -> str:
    return "\n\n".join((_spans(), _attributes(), _metrics(), _labels())) + "\n"


def _table(*rows: tuple[str, ...]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _spans() -> str:
    rows = [
        (
            f"`{one.name}`",
            one.kind,
            one.process,
            one.parent,
            one.links or "none",
            ", ".join(f"`{name}`" for name in one.attributes),
        )
        for one in names.SPANS
    ]
    event = f"`{names.VERDICT}` has one event, `{names.EVALUATION}`, with the attributes `gen_ai.evaluation.*`."
    return "## Spans\n\n" + _table(("span", "kind", "made by", "parent", "links", "attributes"), *rows) + f"\n\n{event}"


def _attributes() -> str:
    rows = [(f"`{one.name}`", one.type, one.meaning) for one in names.ATTRIBUTES]
    return "## Attributes\n\n" + _table(("attribute", "type", "meaning"), *rows)


def _metrics() -> str:
    rows = [
        (
            f"`{names.prometheus_name(one)}`",
            f"`{one.name}`",
            one.kind,
            one.unit or "none",
            ", ".join(f"`{label}`" for label in one.labels) or "none",
            one.meaning,
        )
        for one in names.METRICS
    ]
    return "## Metrics\n\n" + _table(("in Prometheus", "over OTLP", "kind", "unit", "labels", "meaning"), *rows)


def _labels() -> str:
    rows = [
        (f"`{one.name}`", one.meaning, ", ".join(f"`{value}`" for value in one.values) or "bounded otherwise")
        for one in LABELS.values()
    ]
    return "## Labels\n\n" + _table(("label", "meaning", "values, besides `other`"), *rows)


def main(arguments: list[str]) -> int:
    page = Path(arguments[0])
    page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
