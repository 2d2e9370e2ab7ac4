"""A rig a framework: a real agent of it, whose fake model says what a test needs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Final

import pytest

from tests.agent.adapters.rigs.base import Rig

__all__ = ["NAMES", "Rig", "rig_of"]

NAMES: Final = {
    "langchain": "langchain",
    "langchain_async": "langchain",
    "deepagents": "deepagents",
    "deepagents_async": "deepagents",
    "strands": "strands",
    "pydantic_ai": "pydantic_ai",
    "google_adk": "google.adk",
    "openhands": "openhands.sdk",
}
"""Rigs by name, each with the module that its framework is."""


APART: Final = ("openhands",)
"""Rigs whose framework needs Python 3.12 and an environment of its own: constraints-openhands.txt."""


os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # OpenHands' LiteLLM would ask the network for prices.
os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")


def rig_of(name: str) -> type[Rig]:
    """The rig of a framework; the test is skipped where that is not installed."""
    wanted, target = os.environ.get("LEADLINE_TEST_ADAPTERS", ""), "openhands-test" if name in APART else "adapters-test"
    try:
        found = importlib.util.find_spec(NAMES[name]) is not None
    except ModuleNotFoundError:
        found = False
    if not found and (wanted == name or (wanted == "all" and name not in APART)):
        pytest.fail(f"{NAMES[name]} is not installed, and LEADLINE_TEST_ADAPTERS asks for {wanted}")
    if not found and name in APART and sys.version_info < (3, 12):
        pytest.skip(f"{NAMES[name]} needs Python 3.12 or later (`make {target}` runs its tests where there is one)")
    if not found:
        pytest.skip(f"{NAMES[name]} is not installed (`make {target}` installs it)")
    rig: type[Rig] = importlib.import_module(f"tests.agent.adapters.rigs.{name}").TheRig
    return rig
