"""What the adapters' tests run with is what everything else runs with, but for what a framework does not go along with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.agent.adapters.rigs import APART, NAMES

ROOT = Path(__file__).resolve().parents[3]
DIFFERENT = ("opentelemetry-", "python-dateutil")


def pinned(path: Path) -> dict[str, str]:
    lines = (line.split(" ;")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    pins = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in pins}


def test_the_adapters_constraints_differ_only_where_they_say_so() -> None:
    general, own = pinned(ROOT / "constraints.txt"), pinned(Path(__file__).with_name("constraints.txt"))
    differing = {name for name in general.keys() & own.keys() if general[name] != own[name]}
    assert [name for name in sorted(differing) if not name.startswith(DIFFERENT)] == []


def test_each_adapter_is_an_extra_whose_packages_are_pinned() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for name in {name.removesuffix("_async") for name in NAMES}:
        own = pinned(Path(__file__).with_name(f"constraints-{name}.txt" if name in APART else "constraints.txt"))
        for package in extras[name.replace("_", "-")]:
            wanted = re.split(r"[<>=\[; ]", package)[0]
            assert wanted == "leadline" or wanted in own, package
