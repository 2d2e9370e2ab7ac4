"""What several files of tests need of the agent's side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadline.agent.spool import Spool


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Spool]]:
    """Spools in one directory, closed at the end."""
    made: list[Spool] = []

    def spool_of(target: str = "kafka:9092", **options: int) -> Spool:
        made.append(Spool(tmp_path / "spool", target, **options))
        return made[-1]

    yield spool_of
    for one in made:
        one.close()
