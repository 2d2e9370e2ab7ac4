"""What every test folder shares."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.support.fixtures import bootstrap, broker, fresh_bootstrap, kafka  # noqa: F401 - fixtures

# Tests start some hundred processes: each module is compiled once, also where the environment forbids to keep that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples on every run: a red test stays red until somebody mends it. Exploring is `--hypothesis-profile=explore`.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who uses a broker is marked so: `make kafka-test` forgets nobody. What takes long waits for `make long-test` and that."""
    skip = pytest.mark.skip(reason="takes long: make long-test runs it")
    for item in items:
        if item.get_closest_marker("long") and not os.environ.get("LEADLINE_TEST_LONG"):
            item.add_marker(skip)
        used = getattr(item, "fixturenames", ())
        for name in ("broker", "kafka"):
            if name in used:
                item.add_marker(name)
