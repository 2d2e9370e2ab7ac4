"""Manifests that were rendered: their parts, and what is wrong with those of kinds that others define (KEDA, the Prometheus
operator, Strimzi)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.helm import tools

__all__ = ["CUSTOM", "STRIMZI", "custom_faults", "manifests", "of_kind", "pods", "strimzi_faults"]


def manifests(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(text: str, kind: str) -> list[dict[str, Any]]:
    return [one for one in manifests(text) if one["kind"] == kind]


def pods(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and pod spec of everything that runs."""
    found = []
    for one in manifests(text):
        if one["kind"] == "Pod":
            found.append((one["metadata"]["name"], one["spec"]))
        elif "template" in one.get("spec", {}):
            found.append((one["metadata"]["name"], one["spec"]["template"]["spec"]))
    return found


CUSTOM = ("keda.sh/", "monitoring.coreos.com/")


def custom_faults(given: list[dict[str, Any]]) -> str:
    command = [sys.executable, str(Path(__file__).with_name("custom.py")), str(tools.libraries())]
    lines = "".join(f"{json.dumps(one)}\n" for one in given)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout


STRIMZI: dict[str, Any] = {
    "KafkaTopic": {
        "type": "object",
        "required": ["topicName", "partitions", "replicas", "config"],
        "additionalProperties": False,
        "properties": {
            "topicName": {"type": "string"},
            "partitions": {"type": "integer", "minimum": 1},
            "replicas": {"type": "integer", "minimum": 1, "maximum": 32767},
            "config": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    },
    "KafkaUser": {
        "type": "object",
        "required": ["authentication", "authorization"],
        "additionalProperties": False,
        "properties": {
            "authentication": {"type": "object", "properties": {"type": {"enum": ["tls", "scram-sha-512"]}}},
            "authorization": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "simple"},
                    "acls": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["resource", "operations"],
                            "additionalProperties": False,
                            "properties": {
                                "resource": {
                                    "type": "object",
                                    "required": ["type", "name"],
                                    "properties": {"type": {"enum": ["topic", "group"]}, "patternType": {"const": "literal"}},
                                },
                                "operations": {
                                    "type": "array",
                                    "minItems": 1,
                                    "items": {"enum": ["Read", "Write", "Create", "Describe", "DescribeConfigs"]},
                                },
                                "host": {"const": "*"},
                            },
                        },
                    },
                },
            },
        },
    },
}
"""What is used of Strimzi's resources, from its documentation: the words and bounds that its classes do not refuse."""


def strimzi_faults(given: list[dict[str, Any]]) -> list[str]:
    command = tools.strimzi()
    assert command is not None
    lines = "".join(f"{json.dumps(one)}\n" for one in given)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
