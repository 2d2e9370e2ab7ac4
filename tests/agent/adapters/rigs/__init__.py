"""A rig a framework: a real agent of it, whose fake model says what a test needs."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Final

import pytest

from tests.agent.adapters.rigs.base import Rig

__all__ = ["NAMES", "Rig", "rig_of"]

NAMES: Final = {
    "langchain": "langchain",
    "deepagents": "deepagents",
    "strands": "strands",
    "pydantic_ai": "pydantic_ai",
    "google_adk": "google.adk",
}
"""Rigs by name, each with the module that its framework is."""


def rig_of(name: str) -> type[Rig]:
    """The rig of a framework; the test is skipped where that is not installed."""
    try:
        found = importlib.util.find_spec(NAMES[name]) is not None
    except ModuleNotFoundError:
        found = False
    if not found and os.environ.get("LEADLINE_TEST_ADAPTERS") == "all":
        pytest.fail(f"{NAMES[name]} is not installed, and LEADLINE_TEST_ADAPTERS asks for all")
    if not found:
        pytest.skip(f"{NAMES[name]} is not installed (`make adapters-test` installs it)")
    rig: type[Rig] = importlib.import_module(f"tests.agent.adapters.rigs.{name}").TheRig
    return rig
