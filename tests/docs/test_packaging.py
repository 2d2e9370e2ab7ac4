"""What is shipped: the wheel is one package, a source distribution has what its tests need."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAYOUT = {
    *("streams", "tests", "docs", "benchmarks", "deploy", "helm", ".ci"),
    *("Makefile", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt"),
}


def test_a_source_distribution_has_every_part() -> None:
    shipped = set(PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    assert {name for name in LAYOUT if (ROOT / name).exists()} <= shipped


def test_the_wheel_holds_one_package_which_is_typed() -> None:
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["streams/leadline"]
    assert [entry.name for entry in (ROOT / "streams").iterdir() if (entry / "__init__.py").exists()] == ["leadline"]
    assert (ROOT / "streams" / "leadline" / "py.typed").exists()


def test_the_licence_that_is_stated_is_the_one_that_is_shipped() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert PROJECT["project"]["license-files"] == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_types_are_checked_wherever_there_is_code() -> None:
    for name in ("streams", "tests", "benchmarks"):
        assert name in PROJECT["tool"]["mypy"]["files"]
