"""What every test folder shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support.fixtures import broker, kafka  # noqa: F401 - fixtures

# The same examples on every run: a red test stays red until somebody mends it. Exploring is `--hypothesis-profile=explore`.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
