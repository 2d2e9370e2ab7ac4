"""``docs/telemetry.md`` is the list of names."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.telemetry import names
from leadline.telemetry.document import written

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"


def test_the_page_is_what_the_generator_writes() -> None:
    """Else: ``python -m leadline.telemetry.document docs/telemetry.md``."""
    assert PAGE.read_text(encoding="utf-8") == written(PAGE.read_text(encoding="utf-8"))


def test_each_name_is_on_it_once() -> None:
    rows = [line.split(" | ")[0] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for name in (
        *(one.name for one in names.SPANS),
        *(one.name for one in names.ATTRIBUTES),
        *map(names.prometheus_name, names.METRICS),
    ):
        assert rows.count(f"| `{name}`") == 1, name


def test_a_page_without_the_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="no line"):
        written("# Something else\n")
