"""Who may import whom: the contracts of import-linter hold, and the core imports nothing but what is listed here."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "streams" / "leadline"
CORE = ("contracts", "detection", "commands")
HARMLESS = {
    "__future__",
    "ast",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "collections.abc",
    "copy",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "hashlib",
    "inspect",
    "itertools",
    "json",
    "math",
    "msgspec",
    "operator",
    "orjson",
    "pathlib",
    "re",
    "statistics",
    "sys",
    "textwrap",
    "tomllib",
    "types",
    "typing",
}
"""Only ``pathlib`` and ``sys`` could reach outside: run as a script, ``contracts.schemas`` writes its files with them."""
CLOCKS_AND_SURROUNDINGS = {"now", "utcnow", "today", "environ", "getenv", "urandom", "perf_counter", "monotonic"}


@pytest.fixture
def loggers() -> Iterator[None]:
    """import-linter's command line switches off every logger that is there before it; tests that come later read logs."""
    before = [(one, one.disabled) for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    yield
    for logger, disabled in before:
        logger.disabled = disabled


@pytest.mark.usefixtures("loggers")
def test_the_contracts_of_import_linter_hold(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def core_modules() -> list[Path]:
    return sorted(path for part in CORE for path in (PACKAGE / part).rglob("*.py"))


def test_the_core_imports_only_itself_and_what_is_known_to_be_harmless() -> None:
    """A list of what is allowed, so that nobody has to think of everything that is not."""
    graph = grimp.build_graph("leadline", include_external_packages=True, cache_dir=None)
    ours = {f"leadline.{part}" for part in CORE}
    found = set()
    for module in graph.modules:
        if any(module == part or module.startswith(f"{part}.") for part in ours):
            for imported in graph.find_modules_directly_imported_by(module):
                inside = imported == "leadline.errors" or any(
                    imported == part or imported.startswith(f"{part}.") for part in ours
                )
                if not inside and imported not in HARMLESS:
                    found.add(f"{module} imports {imported}")
    assert sorted(found) == []


@pytest.mark.parametrize("path", core_modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_of_the_core_asks_for_the_time_or_the_environment(path: Path) -> None:
    """``now`` is given: a module may have a parameter of that name, and a field, but calls nothing so named on a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    asked = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in CLOCKS_AND_SURROUNDINGS
        and isinstance(node.value, ast.Name)
        and node.value.id in {"datetime", "date", "dt", "time", "os", "pathlib"}
    ]
    assert asked == []


def test_no_module_of_the_core_is_a_god_file() -> None:
    assert {path.name: lines for path in core_modules() if (lines := len(path.read_text().splitlines())) > 400} == {}
