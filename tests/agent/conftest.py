"""The broker that the conformance suite runs on."""

from __future__ import annotations

from tests.support.fixtures import broker

__all__ = ["broker"]
