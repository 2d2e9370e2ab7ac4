"""A real Prometheus scrapes a running worker and evaluates the shipped rules: alerts fire on a fault and end with it.

The rules are the shipped ones with every duration 60 times shorter, so that minutes become seconds.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.observability.queries import DEPLOY
from tests.observability.tools import needed
from tests.processors.running import MONITOR, RunningWorker, Topics, round_event, until
from tests.support.ports import free_ports

pytestmark = [pytest.mark.broker, pytest.mark.e2e]

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def hurried(rules: str) -> str:
    """The rules with every duration 60 times shorter, no less than a second."""

    def shorter(found: re.Match[str]) -> str:
        return f"{found[1]}{max(1, round(int(found[2]) * _SECONDS[found[3]] / 60))}s{found[4]}"

    rules = re.sub(r"(\[)(\d+)([smhd])(\])", shorter, rules)
    rules = re.sub(r"(offset )(\d+)([smhd])()", shorter, rules)
    return re.sub(r"((?:for|interval): )([1-9]\d*)([smhd])()", shorter, rules)


class Prometheus:
    """A server on loopback that scrapes one target every second."""

    def __init__(self, folder: Path, target: int) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        (folder / "leadline.rules.yml").write_text(hurried((DEPLOY / "prometheus" / "leadline.rules.yml").read_text()))
        shipped = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        shipped = re.sub(r"scrape_interval: \S+", "scrape_interval: 1s", shipped)
        shipped = re.sub(r"evaluation_interval: \S+", "evaluation_interval: 1s", shipped)
        (folder / "prometheus.yml").write_text(shipped.replace("127.0.0.1:9464", f"127.0.0.1:{target}"))
        self._log = (folder / "prometheus.log").open("wb")
        command = [
            needed("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
        ]
        self.process = subprocess.Popen(command, cwd=folder, stdout=self._log, stderr=self._log)

    def get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=5) as answer:
                return json.load(answer)["data"]
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def firing(self) -> set[str]:
        found = self.get("alerts") or {"alerts": []}
        return {alert["labels"]["alertname"] for alert in found["alerts"] if alert["state"] == "firing"}

    def value(self, expression: str) -> float:
        found = self.get(f"query?query={urllib.parse.quote(expression)}")
        return float(found["result"][0]["value"][1]) if found and found["result"] else 0.0

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self._log.close()


@pytest.fixture
def port() -> int:
    (found,) = free_ports(1)
    return found


@pytest.fixture
def prometheus(tmp_path: Path, port: int) -> Iterator[Prometheus]:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = Prometheus(folder, port)
    yield server
    server.stop()


@pytest.mark.timeout(400)
def test_alerts_fire_on_a_fault_and_end_with_it(bootstrap: str, tmp_path: Path, prometheus: Prometheus, port: int) -> None:
    """A writer sends what cannot be read, and mends itself; then the worker dies, and is started again."""
    topics = Topics(bootstrap)
    worker = RunningWorker(bootstrap, tmp_path / "worker", MONITOR, http_port=port).ready()
    number, wrote = 0, 0.0

    def write(bad: bool) -> None:
        """Some records twice a second."""
        nonlocal number, wrote
        if time.monotonic() - wrote < 0.5:
            return
        wrote = time.monotonic()
        for _ in range(10):
            number += 1
            topics.send("s1", round_event("s1", number))
            if bad:
                topics.send("s1", b"null")
        topics.flush()

    def seen(name: str, bad: bool, firing: bool = True) -> bool:
        write(bad)
        return (name in prometheus.firing()) is firing

    try:
        until("a scraped worker", lambda: prometheus.value("leadline_ready") == 1)
        # Whatever fired while the worker was not there yet is over.
        until("quiet", lambda: seen("LeadlineBlind", bad=False, firing=False))
        assert "LeadlineDeadLettersRising" not in prometheus.firing()
        until("the alert about dead letters", lambda: seen("LeadlineDeadLettersRising", bad=True))
        until("its end", lambda: seen("LeadlineDeadLettersRising", bad=False, firing=False))
        until("the reason", lambda: prometheus.value('sum(leadline_dead_letters_total{reason="not-an-object"})') > 10)
        until("the rounds", lambda: prometheus.value("sum(leadline_rounds_total)") > 50)

        worker.kill()
        until("the alert about a blind monitor", lambda: "LeadlineBlind" in prometheus.firing())
        worker = RunningWorker(bootstrap, tmp_path / "worker", MONITOR, http_port=port, app_id="again").ready()
        until("its end", lambda: "LeadlineBlind" not in prometheus.firing())
        until("the rules", lambda: prometheus.get("rules"))
        health = {rule["name"]: rule["health"] for group in prometheus.get("rules")["groups"] for rule in group["rules"]}
        assert set(health.values()) == {"ok"}, "every shipped rule evaluates on what a worker exposes"
    finally:
        topics.close()
        worker.stop()


def test_hurried_rules_are_the_shipped_ones_in_shorter_time() -> None:
    assert hurried("expr: rate(x[5m]) offset 1d\nfor: 10m\nfor: 0m") == "expr: rate(x[5s]) offset 1440s\nfor: 10s\nfor: 0m"
