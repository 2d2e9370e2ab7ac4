"""The image's recipe and the compose file, as far as they can be checked without a container engine: linted, held to their
schema, and what they name is there. Neither is built or started here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from leadline.cli.main import VERBS
from leadline.demo.fleet import FleetPlan
from leadline.demo.kinds import kind_named
from leadline.settings import describe_settings, load_settings
from tests.helm import tools
from tests.helm.generate import ROOT
from tests.support.ports import free_ports

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
NEEDS = "python -m tests.helm.tools (or `make deploy-test`) fetches it"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def ours(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in compose["services"].items() if one["image"].startswith("leadline:")}


@pytest.mark.skipif(tools.hadolint() is None, reason=f"hadolint is not here: {NEEDS}")
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    command = [str(tools.hadolint()), "--failure-threshold", "style", str(DEPLOY / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_image_runs_as_nobody_in_particular_and_its_sources_are_there() -> None:
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert "USER 10001:10001" in last
    assert last.index("USER") > last.index("RUN")
    assert 'ENTRYPOINT ["leadline"]' in last
    assert re.search(r"^ARG BASE=python:\d+\.\d+\.\d+-slim", DOCKERFILE, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = [name for line in copied for name in line.split()]
    assert sources
    assert [name for name in sources if not (ROOT / name).exists()] == []
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert ignored[0] == "*"
    assert [name for name in sources if f"!{name}" not in ignored] == []


def test_the_extras_of_the_image_are_those_of_the_package() -> None:
    (extras,) = re.findall(r'"\$1\[([a-z,]+)\]"', DOCKERFILE)
    given = re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(extras.split(",")) <= set(given)


@pytest.mark.skipif(tools.compose_schema() is None, reason=f"the schema of compose files is not here: {NEEDS}")
def test_the_compose_file_is_one(compose: dict[str, Any]) -> None:
    schema_file = tools.compose_schema()
    assert schema_file is not None
    validator = jsonschema.Draft201909Validator(json.loads(schema_file.read_text()))
    # The packaged schema is older than the project's name at the top.
    checked = {key: value for key, value in compose.items() if key != "name"}
    assert [error.message for error in validator.iter_errors(checked)] == []
    broken = json.loads(json.dumps(checked))
    broken["services"]["kafka"]["imagee"] = "x"
    assert ["imagee" in error.message for error in validator.iter_errors(broken)] == [True]


def read_by_compose(file: Path) -> subprocess.CompletedProcess[str]:
    command = tools.compose_config()
    assert command is not None
    return subprocess.run([*command, str(file)], capture_output=True, text=True, check=False, timeout=60)


needs_compose = pytest.mark.skipif(tools.compose_config() is None, reason=f"`docker compose config` is not here: {NEEDS}")


@needs_compose
def test_compose_reads_the_file_whole(compose: dict[str, Any]) -> None:
    """Keys are merged, short forms, variables and paths resolved: what it would start is what is meant."""
    done = read_by_compose(DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stderr
    assert "variable is not set" not in done.stderr
    project = json.loads(done.stdout)
    assert project["name"] == "leadline"
    assert project["services"].keys() == compose["services"].keys()
    ports = [port for one in project["services"].values() for port in one.get("ports", [])]
    assert len(ports) == 5
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    for name, one in project["services"].items():
        for mount in one.get("volumes", []):
            if mount["type"] == "bind":
                assert mount["read_only"] is True, f"{name}: {mount}"
                assert Path(mount["source"]).exists(), f"{name}: {mount}"
        if "build" in one:
            assert Path(one["build"]["context"]) == ROOT
            assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"]), name
            assert (Path(one["build"]["context"]) / one["build"]["dockerfile"]).is_file()
            assert one["environment"]["LEADLINE_BOOTSTRAP"] == "kafka:9092", name
    monitor = project["services"]["monitor-2"]
    assert monitor["environment"]["LEADLINE_OTLP_ENDPOINT"] == "http://collector:4318", "merged over two anchors"
    assert monitor["depends_on"]["topics"]["condition"] == "service_completed_successfully"
    assert project["services"]["dashboard"]["environment"]["LEADLINE_DASHBOARD_TRACE_URL"].endswith("/{trace_id}")


@needs_compose
@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("depends_on: [traces, tempo]", "depends_on: [trace, tempo]", 'depends on undefined service "trace"'),
        ("volumes: [monitor-1:/", "volumes: [monitor-3:/", 'undefined volume "?monitor-3'),
        ("secrets: [dashboard-token]", "secrets: [token]", 'undefined secret "?token'),
        ("stop_grace_period: 40s", "stop_grace_period: 40q", "stop_grace_period"),
        ("stop_grace_period: 40s", "stop_grace_perid: 40s", "stop_grace_perid"),
    ],
)
def test_compose_refuses_what_is_wrong(tmp_path: Path, written: str, instead: str, said: str) -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    assert text.count(written) == 1
    (tmp_path / "compose.yaml").write_text(text.replace(written, instead))
    done = read_by_compose(tmp_path / "compose.yaml")
    assert done.returncode != 0
    assert re.search(said, done.stderr), done.stderr


def test_what_the_compose_file_names_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, one in services.items():
        waits = one.get("depends_on", [])
        assert set(waits) <= services.keys(), name
        for other, how in waits.items() if isinstance(waits, dict) else ():
            healthy = how["condition"] != "service_healthy" or "healthcheck" in services[other] or other in ours(compose)
            assert healthy, f"{name} waits for the health of {other}, which has no check"
        for volume in one.get("volumes", []):
            source = volume.split(":")[0]
            there = (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"]
            assert there, f"{name}: {volume}"
        assert re.search(r":v?\d+\.\d+\.\d+$", one["image"]), f"{name}: {one['image']} is not pinned"
    assert all((DEPLOY / secret["file"]).is_file() for secret in compose["secrets"].values())


def test_every_port_is_open_on_this_machine_only(compose: dict[str, Any]) -> None:
    ports = [port for one in compose["services"].values() for port in one.get("ports", [])]
    assert len(ports) >= 5
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_our_containers_are_confined_and_their_settings_are_taken(compose: dict[str, Any], tmp_path: Path) -> None:
    known = {variable for variable, _ in describe_settings()}
    assert len(ours(compose)) == 5
    for name, one in ours(compose).items():
        assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"]), name
        assert set(one["environment"]) <= known, name
        load_settings({**one["environment"], "LEADLINE_DATA_DIR": str(tmp_path)})
        assert one.get("command", ["monitor"])[0] in VERBS, name
    workers = {one["environment"]["LEADLINE_INSTANCE_ID"] for name, one in ours(compose).items() if name.startswith("monitor")}
    assert workers == {"monitor-1", "monitor-2"}


def test_the_demo_fleets_plan_is_one(compose: dict[str, Any]) -> None:
    plan = msgspec.json.decode((DEPLOY / "compose" / "fleet.json").read_bytes(), type=FleetPlan)
    assert plan.bootstrap == ours(compose)["fleet"]["environment"]["LEADLINE_BOOTSTRAP"]
    assert len({one.session_id for one in plan.agents}) == len(plan.agents)
    assert {kind_named(one.kind).name for one in plan.agents} >= {"inverting", "truncating", "constraint-losing"}


class _Live(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/live" else 404)
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def page() -> Iterator[tuple[int, type[_Live]]]:
    handler = type("Live", (_Live,), {})
    server = HTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server.server_port, handler
    server.shutdown()
    server.server_close()


def healthy(port: int, host: str = "0.0.0.0") -> int:
    environ = {**os.environ, "LEADLINE_HTTP_PORT": str(port), "LEADLINE_HTTP_HOST": host, "http_proxy": "http://127.0.0.1:1"}
    command = [sys.executable, str(DEPLOY / "healthcheck.py")]
    return subprocess.run(command, env=environ, capture_output=True, check=False, timeout=60).returncode


def test_the_health_check_asks_the_worker(page: tuple[int, type[_Live]]) -> None:
    """200 is healthy, 503 and nobody are not; without a page there is nothing to ask."""
    port, handler = page
    assert healthy(port) == 0
    handler.status = 503
    assert healthy(port) == 1
    assert healthy(free_ports(1)[0]) == 1
    assert healthy(0) == 0
