"""Manifests against the Kubernetes schemas of a version, strictly: a field that is not known is a fault."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from tests.helm import tools

__all__ = ["faults"]

_CUSTOM = ("kafka.strimzi.io/", "keda.sh/", "monitoring.coreos.com/")


def faults(manifest: dict[str, Any], version: str) -> list[str]:
    """What is wrong with a manifest of Kubernetes' own kinds; nothing for a custom resource."""
    if manifest["apiVersion"].startswith(_CUSTOM):
        return []
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    validator = _validator(manifest["kind"], manifest["apiVersion"], version)
    if validator is None:
        return [f"{name}: Kubernetes {version} has no {manifest['apiVersion']} {manifest['kind']}"]
    return [f"{name}: {'.'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(manifest)]


@functools.cache
def _validator(kind: str, api: str, version: str) -> Any:
    group, _, number = api.rpartition("/")
    parts = [kind.lower(), *([group.partition(".")[0]] if group else []), number]
    file = _folder(version) / f"{'-'.join(parts)}.json"
    return Draft7Validator(json.loads(file.read_text()), registry=_registry(version)) if file.is_file() else None


@functools.cache
def _registry(version: str) -> Any:
    definitions = json.loads((_folder(version) / "_definitions.json").read_text())
    return Registry().with_resource("/api/_definitions.json", Resource(contents=definitions, specification=DRAFT7))


def _folder(version: str) -> Path:
    libraries = tools.libraries()
    assert libraries is not None
    return libraries / "kubernetes_validate" / "kubernetes-json-schema" / f"v{version}.0-local-strict"
