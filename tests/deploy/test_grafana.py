"""What Grafana is given in compose: sources of the kinds that the shipped dashboards ask for, at services that are there."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from tests.helm.generate import ROOT

DEPLOY = ROOT / "deploy"
PROVISIONING = DEPLOY / "compose" / "grafana"
LISTENS = {"prometheus": 9090, "tempo": 3200}
"""Where those services answer: their own defaults, and what ``deploy/compose/tempo.yml`` says."""

DATASOURCES: dict[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "datasources"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": 1},
        "datasources": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "uid", "type", "url"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "uid": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"},
                    "type": {"type": "string"},
                    "url": {"type": "string", "pattern": "^http://"},
                    "isDefault": {"type": "boolean"},
                    "jsonData": {"type": "object"},
                },
            },
        },
    },
}
PROVIDERS: dict[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "providers"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": 1},
        "providers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "type", "options"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "folder": {"type": "string"},
                    "type": {"const": "file"},
                    "options": {
                        "type": "object",
                        "required": ["path"],
                        "additionalProperties": False,
                        "properties": {"path": {"type": "string", "pattern": "^/"}},
                    },
                },
            },
        },
    },
}
"""What is used of Grafana's provisioning files, from its documentation: they have no schema of their own."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def sources() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((PROVISIONING / "datasources.yml").read_text())
    jsonschema.validate(loaded, DATASOURCES)
    found: list[dict[str, Any]] = loaded["datasources"]
    return found


def test_the_sources_are_services_of_compose(sources: list[dict[str, Any]], compose: dict[str, Any]) -> None:
    assert [one["uid"] for one in sources if one.get("isDefault")] == ["prometheus"]
    for one in sources:
        at = urlsplit(one["url"])
        assert at.hostname in compose["services"], one["name"]
        assert at.port == LISTENS[at.hostname], one["name"]
    store = yaml.safe_load((DEPLOY / "compose" / "tempo.yml").read_text())
    assert store["server"]["http_listen_port"] == LISTENS["tempo"]


def test_each_dashboard_finds_the_kinds_of_sources_that_it_asks_for(sources: list[dict[str, Any]]) -> None:
    """But for logs, which compose has no store for."""
    here = {one["type"] for one in sources}
    boards = sorted((DEPLOY / "observability" / "grafana").glob("*.json"))
    asked = {
        variable["query"]
        for board in boards
        for variable in json.loads(board.read_text())["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert asked - here == {"loki"}
    assert here <= asked


def test_an_exemplar_leads_to_its_trace(sources: list[dict[str, Any]]) -> None:
    """By the label that the exposition's exemplars have, into a source of traces; the collector sends them there."""
    (prometheus,) = [one for one in sources if one["type"] == "prometheus"]
    (leads,) = prometheus["jsonData"]["exemplarTraceIdDestinations"]
    assert leads == {"name": "trace_id", "datasourceUid": next(one["uid"] for one in sources if one["type"] == "tempo")}
    sent = yaml.safe_load((DEPLOY / "compose" / "collector.yml").read_text())
    exporters = [sent["exporters"][name]["endpoint"] for name in sent["service"]["pipelines"]["traces"]["exporters"]]
    receives = yaml.safe_load((DEPLOY / "compose" / "tempo.yml").read_text())["distributor"]["receivers"]["otlp"]["protocols"]
    assert f"tempo:{receives['grpc']['endpoint'].rpartition(':')[2]}" in exporters
    assert "traces:4317" in exporters


def test_the_dashboards_are_where_they_are_looked_for(compose: dict[str, Any]) -> None:
    loaded = yaml.safe_load((PROVISIONING / "dashboards.yml").read_text())
    jsonschema.validate(loaded, PROVIDERS)
    mounts = {target: source for source, target, _ in (volume.split(":") for volume in compose["services"]["grafana"]["volumes"])}
    for one in loaded["providers"]:
        assert list((DEPLOY / mounts[one["options"]["path"]]).glob("*.json"))
    assert mounts["/etc/grafana/provisioning/datasources/leadline.yml"] == "./compose/grafana/datasources.yml"
    assert mounts["/etc/grafana/provisioning/dashboards/leadline.yml"] == "./compose/grafana/dashboards.yml"
