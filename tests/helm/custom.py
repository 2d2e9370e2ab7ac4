"""Checks custom resources from standard input (JSON lines) against their models; a process of its own, so that their libraries
touch nobody else's: ``python tests/helm/custom.py LIBRARIES`` prints what is wrong, a line each.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

_MODELS = {
    "keda.sh/v1alpha1": "cloudcoil.models.keda.v1alpha1",
    "monitoring.coreos.com/v1": "cloudcoil.models.prometheus_operator.v1",
}


def faults(manifest: dict[str, Any]) -> list[str]:
    """What is wrong with one custom resource."""
    model = getattr(importlib.import_module(_MODELS[manifest["apiVersion"]]), manifest["kind"])
    try:
        kept = model.model_validate(manifest).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except ValueError as error:
        return [" ".join(str(error).split())]
    return lost(manifest, kept, "")


def lost(given: Any, kept: Any, path: str) -> list[str]:
    """The models pass over what they do not know: what does not come back was misspelt."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [
            fault
            for name, value in given.items()
            for fault in (lost(value, kept[name], f"{path}.{name}") if name in kept else [f"{path}.{name} is not known"])
        ]
    if isinstance(given, list) and isinstance(kept, list):
        return [fault for index, pair in enumerate(zip(given, kept, strict=True)) for fault in lost(*pair, f"{path}[{index}]")]
    return []


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    for line in sys.stdin:
        manifest = json.loads(line)
        for fault in faults(manifest):
            print(f"{manifest['kind']} {manifest['metadata']['name']}: {fault}")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
