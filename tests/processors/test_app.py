"""The engine's settings that keep a worker safe."""

from __future__ import annotations

from pathlib import Path

from leadline.contracts.topics import DEAD_LETTERS
from leadline.processors.app import make_app
from leadline.settings import Settings


async def test_a_worker_listens_nowhere(tmp_path: Path) -> None:
    """The engine's own pages would be open on every address of the machine."""
    assert make_app(Settings(data_dir=tmp_path)).conf.web_enabled is False


async def test_its_producer_takes_the_largest_dead_letter(tmp_path: Path) -> None:
    app = make_app(Settings(data_dir=tmp_path))
    assert app.conf.producer_max_request_size >= int(DEAD_LETTERS.config["max.message.bytes"])
