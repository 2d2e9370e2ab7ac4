"""The page's own files: libraries as they were published, no address of anybody else, nothing that a strict policy forbids."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from leadline import dashboard

STATIC = Path(dashboard.__file__).parent / "static"
VENDOR = STATIC / "vendor"
OURS = [path for path in STATIC.iterdir() if path.suffix in (".js", ".html", ".css", ".svg")]


def test_libraries_are_as_published_and_their_licences_are_beside_them() -> None:
    rows = re.findall(
        r"^\| \S+ \| [\d.]+ \| [\w.-]+ \| `([^`]+)` \| `([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.M
    )
    found = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.suffix in (".js", ".css")}
    assert {name for name, _ in rows} == found
    for name, checksum in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == checksum, name
    for folder in {Path(name).parts[0] for name in found}:
        assert "copyright" in (VENDOR / folder / "LICENSE").read_text().lower()


def test_what_is_imported_is_there() -> None:
    for path in OURS:
        for target in re.findall(r'(?:from |href="|src=")"?(/static/[^"]+)"', path.read_text()):
            assert (STATIC / target.removeprefix("/static/")).is_file(), f"{path.name}: {target}"


def test_our_files_name_no_other_host_and_use_nothing_that_the_policy_forbids() -> None:
    """A style attribute or an inline handler would be ignored by browsers under this policy, so that nobody would see it."""
    for path in OURS:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", text), path.name
        assert not re.search(r"\bstyle=|\son\w+=\"|innerHTML|insertAdjacentHTML|document\.write|eval\(|unsafe", text), path.name
