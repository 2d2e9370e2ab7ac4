"""What in ``helm/`` is made from something else: ``python -m tests.helm.generate`` writes it anew, a test compares.

- ``values.schema.json``, from ``values.yaml`` and the list of words and bounds below
- ``README.md``, the table of values from the lines of ``values.yaml`` that begin with ``# --``
- ``files/``, from the table of topics and from ``deploy/observability``
- ``tests/helm/goldens/``, the chart rendered with ``tests/helm/values/``
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from leadline.contracts.acls import ROLES, acls
from leadline.contracts.topics import TOPICS
from tests.helm import tools

__all__ = ["CASES", "CHART", "GOLDENS", "KEPT", "ROOT", "golden", "made", "render"]

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "helm" / "leadline"
GOLDENS: Final = Path(__file__).with_name("goldens")
CASES: Final = sorted(path.stem for path in Path(__file__).with_name("values").glob("*.yaml"))
KEPT: Final = ("everything", "minimal", "secure")
"""The cases whose manifests are kept, to be looked at in a change."""
_OBSERVABILITY: Final = ROOT / "deploy" / "observability"
_CAPABILITIES: Final = ["--kube-version", "1.34.0"]

_TEXT = {"type": "string"}
_FREE = {"type": "object"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_PORTS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}}
_OBJECTS = {"type": "array", "items": _FREE}
_SIZE = {"type": "string", "pattern": r"^\d+(\.\d+)?([EPTGMK]i?)?$"}
_SECONDS = {"type": "integer", "minimum": 0}
_COUNT = {"type": "integer", "minimum": 1}
_PORT = {"type": "integer", "minimum": 1024, "maximum": 65535}

NARROW: Final[dict[str, dict[str, Any]]] = {
    "commonLabels": _TEXTS,
    "imagePullSecrets": _OBJECTS,
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "serviceAccount.annotations": _TEXTS,
    "kafka.bootstrap": {"type": "string", "pattern": r"^([^,\s]+:\d+(,[^,\s]+:\d+)*)?$"},
    "kafka.appId": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,200}$"},
    "kafka.security.protocol": {"enum": ["PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"]},
    "kafka.security.sasl.mechanism": {"enum": ["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]},
    "topics.create": {"enum": ["job", "strimzi", "none"]},
    "topics.partitions": _COUNT,
    "topics.replication": _COUNT,
    "topics.job.activeDeadlineSeconds": _COUNT,
    "topics.strimzi.apiVersion": {"enum": ["kafka.strimzi.io/v1", "kafka.strimzi.io/v1beta2"]},
    "topics.strimzi.authentication": {"enum": ["scram-sha-512", "tls"]},
    "monitor.replicas": _SECONDS,
    "monitor.standbyReplicas": _SECONDS,
    "monitor.drainSeconds": _COUNT,
    "monitor.preStopSeconds": _SECONDS,
    "monitor.sessionTimeoutSeconds": {"type": "integer", "minimum": 6, "maximum": 600},
    "monitor.logLevel": {"enum": ["DEBUG", "INFO", "WARNING", "ERROR"]},
    "monitor.httpPort": _PORT,
    "monitor.env": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    "monitor.resources": _FREE,
    "monitor.persistence.size": _SIZE,
    "monitor.persistence.emptyDirSizeLimit": _SIZE,
    "monitor.startup.limitSeconds": _COUNT,
    "monitor.podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"]},
    "monitor.topologyKeys": {"type": "array", "items": _TEXT},
    "monitor.podAnnotations": _TEXTS,
    "monitor.podLabels": _TEXTS,
    "monitor.nodeSelector": _TEXTS,
    "monitor.tolerations": _OBJECTS,
    "monitor.affinity": _FREE,
    "autoscaling.kind": {"enum": ["none", "keda", "hpa"]},
    "autoscaling.minReplicas": _COUNT,
    "autoscaling.maxReplicas": _COUNT,
    "autoscaling.lagThreshold": _COUNT,
    "autoscaling.targetCPU": {"type": "integer", "minimum": 1, "maximum": 100},
    "autoscaling.scaleDownStabilizationSeconds": {"type": "integer", "minimum": 0, "maximum": 3600},
    "telemetry.podMonitor.labels": _TEXTS,
    "telemetry.podMonitor.interval": {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"},
    "telemetry.serviceMonitor.labels": _TEXTS,
    "telemetry.serviceMonitor.interval": {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"},
    "telemetry.prometheusRule.labels": _TEXTS,
    "telemetry.grafanaDashboards.labels": _TEXTS,
    "networkPolicy.kafkaPorts": _PORTS,
    "networkPolicy.otlpPorts": _PORTS,
    "networkPolicy.kafkaPeers": _OBJECTS,
    "networkPolicy.metricsPeers": _OBJECTS,
    "networkPolicy.dashboardPeers": _OBJECTS,
    "networkPolicy.extraEgress": _OBJECTS,
    "dashboard.replicas": _COUNT,
    "dashboard.port": _PORT,
    "dashboard.resources": _FREE,
    "dashboard.nodeSelector": _TEXTS,
    "dashboard.tolerations": _OBJECTS,
    "dashboard.affinity": _FREE,
    "dashboard.ingress.annotations": _TEXTS,
    "test.timeoutSeconds": _COUNT,
}
"""What a value may be, where its default does not tell. Everything else is of the default's type."""


def made() -> dict[Path, str]:
    """Every made file of the chart, and what is to be in it."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    found = {
        CHART / "values.schema.json": json.dumps(schema(values), indent=2) + "\n",
        CHART / "README.md": readme((CHART / "values.yaml").read_text(), values),
        CHART / "files" / "cluster.json": json.dumps(cluster(), indent=1) + "\n",
        CHART / "files" / "leadline.rules.yml": (_OBSERVABILITY / "prometheus" / "leadline.rules.yml").read_text(),
    }
    for path in sorted((_OBSERVABILITY / "grafana").rglob("*.json")):
        found[CHART / "files" / "dashboards" / path.name] = path.read_text()
    return found


def schema(values: dict[str, Any]) -> dict[str, Any]:
    """JSON schema of the values; keys that are not in ``values.yaml`` are refused at every level."""
    narrow = dict(NARROW)
    made = {"$schema": "http://json-schema.org/draft-07/schema#", **_object(values, "", narrow)}
    made["properties"]["global"] = {"type": "object"}
    if narrow:
        raise ValueError(f"NARROW names values that are not there: {', '.join(narrow)}")
    return made


def _object(values: dict[str, Any], prefix: str, narrow: dict[str, dict[str, Any]]) -> dict[str, Any]:
    properties = {}
    for name, default in values.items():
        path = f"{prefix}{name}"
        if path in narrow:
            properties[name] = narrow.pop(path)
        elif isinstance(default, dict):
            properties[name] = _object(default, f"{path}.", narrow)
        else:
            properties[name] = {"type": {bool: "boolean", int: "integer", str: "string"}[type(default)]}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def cluster() -> dict[str, Any]:
    """Topics and permissions as the chart's Strimzi resources need them. ``APP_ID`` stands for the group, ``acting`` for a
    dashboard on which people act."""
    parties: dict[str, dict[tuple[str, str], list[str]]] = {}
    for one in acls("APP_ID"):
        parties.setdefault(one.role, {}).setdefault((one.resource, one.name), []).append(one.operation)
    for one in acls("APP_ID", acting=True):
        if one.role == "dashboard":
            parties.setdefault("acting", {}).setdefault((one.resource, one.name), []).append(one.operation)
    return {
        "topics": [{"name": topic.name, "config": topic.config} for topic in TOPICS],
        "acls": {
            role: [{"type": kind, "name": name, "operations": operations} for (kind, name), operations in parties[role].items()]
            for role in (*ROLES, "acting")
            if role != "admin"
        },
    }


def readme(text: str, values: dict[str, Any]) -> str:
    """The table of values. Raises ValueError for one without a line that says what it is."""
    rows: list[tuple[str, str, str]] = []
    path: list[str] = []
    said = ""
    for line in text.splitlines():
        if found := re.match(r"\s*# -- (.*)", line):
            said = found[1]
        elif found := re.match(r"( *)([A-Za-z]+):", line):
            depth = len(found[1]) // 2
            path = [*path[:depth], found[2]]
            if said:
                rows.append((".".join(path), _default(values, path), said))
                said = ""
    missing = [name for name in _leaves(values) if not any(name == row[0] or name.startswith(f"{row[0]}.") for row in rows)]
    if missing:
        raise ValueError(f"values.yaml does not say what these are: {', '.join(missing)}")
    table = "\n".join(f"| `{name}` | {default} | {meaning} |" for name, default, meaning in rows)
    return _README.format(table=table)


_README: Final = """# The chart

Leadline's monitor, and its dashboard where wanted, beside a Kafka that is there already. `docs/security.md` says what a secured
one needs, `docs/sizing.md` how much of what; read `UPGRADING.md` before an upgrade.

```
helm install leadline helm/leadline --set kafka.bootstrap=kafka:9092
helm test leadline
```

## Values

| value | default | meaning |
|---|---|---|
{table}
"""


def _default(values: dict[str, Any], path: list[str]) -> str:
    found: Any = values
    for name in path:
        found = found[name]
    return "" if found == "" else f"`{json.dumps(found)}`"


def _leaves(values: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name, value in values.items():
        found += _leaves(value, f"{prefix}{name}.") if isinstance(value, dict) and value else [f"{prefix}{name}"]
    return found


def render(case: str, *more: str, chart: Path = CHART) -> str:
    """The chart's manifests with the values of a case. Raises ``CalledProcessError`` with helm's words."""
    program = tools.helm()
    assert program is not None
    values = Path(__file__).with_name("values") / f"{case}.yaml"
    command = [
        str(program),
        "template",
        "demo",
        str(chart),
        "--namespace",
        "agents",
        "--values",
        str(values),
        *_CAPABILITIES,
        *more,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def golden(case: str) -> str:
    """As kept: what comes from elsewhere (rules and dashboards) is not repeated in each."""
    return "".join(
        f"---\n{part}" for part in re.split(r"^---\n", render(case), flags=re.MULTILINE) if part.strip() and not _long(part)
    )


def _long(part: str) -> bool:
    return "kind: PrometheusRule" in part or ("-dashboard\n" in part and "kind: ConfigMap" in part)


def main() -> None:
    for path, content in made().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    if tools.helm() is not None:
        for case in KEPT:
            (GOLDENS / f"{case}.yaml").write_text(golden(case))


if __name__ == "__main__":
    main()
