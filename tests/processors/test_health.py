"""The pages of a worker: over real HTTP."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from leadline.errors import SettingsError
from leadline.processors import worker
from leadline.processors.health import Page, Pages, json_page
from leadline.processors.progress import Progress
from tests.processors.running import RunningWorker, Topics, round_event, until
from tests.support.ports import free_ports


def test_a_worker_is_stalled_only_while_it_has_something_to_do() -> None:
    progress = Progress(100.0)
    progress.saw({0: 10, 1: 5}, {0: 10, 1: 5}, 110.0)
    assert progress.stalled_s(110.0) == 0.0, "nothing to do"
    progress.saw({0: 12, 1: 5}, {0: 10, 1: 5}, 120.0)
    assert progress.stalled_s(125.0) == 15.0, "two records wait since the last look at the latest"
    assert progress.lag == {0: 2, 1: 0}
    progress.saw({0: 14, 1: 5}, {0: 11, 1: 5}, 130.0)
    assert progress.stalled_s(131.0) == 1.0, "one was committed"
    progress.saw({0: 14, 1: 5}, {0: 11, 1: 5}, 160.0)
    progress.paused(161.0)
    assert progress.stalled_s(163.0) == 2.0


def test_a_partition_without_a_committed_offset_has_all_to_do() -> None:
    progress = Progress(0.0)
    progress.saw({3: 7}, {}, 1.0)
    progress.saw({3: 7}, {}, 9.0)
    assert progress.lag == {3: 7}
    assert progress.stalled_s(9.0) == 8.0, "since it was first seen"


async def test_pages_of_ones_own() -> None:
    """A page is shown as it is given; one that fails is a 500 that tells nothing; what is not there is 404."""

    async def metrics() -> Page:
        return Page(200, "text/plain; version=0.0.4", b"x 1\n")

    async def broken() -> Page:
        raise RuntimeError("password=hunter2")

    pages = Pages()
    pages.add("/metrics", metrics)
    pages.add("/broken", broken)
    with pytest.raises(ValueError, match="/metrics"):
        pages.add("/metrics", broken)
    port = await pages.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            async with client.get("/metrics") as answer:
                assert answer.status == 200
                assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
                assert await answer.read() == b"x 1\n"
            async with client.get("/broken") as answer:
                assert answer.status == 500
                assert b"hunter2" not in await answer.read()
            async with client.get("/elsewhere") as answer:
                assert answer.status == 404
            async with client.post("/metrics") as answer:
                assert answer.status == 405
        with pytest.raises(SettingsError, match=f"LEADLINE_HTTP_PORT {port} .* cannot be listened on"):
            await Pages().start("127.0.0.1", port)
    finally:
        await pages.stop()


def test_a_json_page_is_one_object() -> None:
    assert json_page(503, ready=False, why="x") == Page(503, "application/json", b'{"ready":false,"why":"x"}\n')


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except (OSError, http.client.HTTPException):
        return 0, {}


def test_the_pages_of_a_worker(bootstrap: str, tmp_path: Path) -> None:
    """Not ready before it is restored, then ready and live; what it has done is told; and it stops in good order."""
    (port,) = free_ports(1)
    running = RunningWorker(bootstrap, tmp_path, http_port=port)
    topics = Topics(bootstrap)
    try:
        until("an answer", lambda: get(port, "/ready")[0] in (200, 503))
        running.ready()
        assert get(port, "/ready") == (200, {"ready": True, "why": "", "partitions": [0, 1, 2, 3]})
        assert get(port, "/live")[0] == 200
        topics.send("health", round_event("health", 1, raw_tokens=0))
        topics.flush()
        until("an observed round", lambda: get(port, "/")[1]["counts"].get("violations"))
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()
        topics.close()


def test_a_port_that_is_taken_is_refused(bootstrap: str, tmp_path: Path) -> None:
    running = RunningWorker(bootstrap, tmp_path, http_port=int(bootstrap.rpartition(":")[2]))
    assert running.exit_code() == worker.REFUSED
    assert "cannot be listened on" in running.log
