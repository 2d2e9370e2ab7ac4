"""What the image would hold, made outside a container: the very instructions of the Dockerfile's first stage, run by a shell, and
then what containers do with it: the verbs, the health check, the demo's fleet.

No engine runs here, so the base image, users and the read-only root are no part of it. ``make deploy-test`` asks for it, since
it fetches what the image installs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helm.generate import ROOT
from tests.processors.running import until
from tests.support.ports import free_ports
from tests.support.wiped import group

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("LEADLINE_TEST_IMAGE") != "1", reason="it fetches packages: `make deploy-test` asks for it"
    ),
    pytest.mark.broker,
    pytest.mark.timeout(900),
]

DEPLOY = ROOT / "deploy"
FIRST_STAGE, LAST_STAGE = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[1:]


def instructions(stage: str, word: str) -> list[str]:
    """The arguments of each such instruction, continued lines put together."""
    joined = re.sub(r"\\\n\s*", "", stage)
    return re.findall(rf"^{word} (.+)$", joined, re.MULTILINE)


@dataclass(frozen=True)
class Image:
    """``bin``: the folder that the image has on its PATH; ``root``: what stands for its file system."""

    root: Path
    bin: Path

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.root,
            env=self.environ(**environ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def environ(self, **more: str) -> dict[str, str]:
        """Nothing of this environment but the way to temporary files; so nothing of the clone is imported."""
        always = {"PATH": f"{self.bin}:/usr/bin:/bin", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        # The image holds no byte code; here it is kept elsewhere, so that each module is compiled once.
        return {**always, "PYTHONPYCACHEPREFIX": str(self.root / "compiled"), **more}


def made(root: Path) -> Image:
    """The image's contents below ``root``."""
    src = root / "src"
    src.mkdir()
    for line in instructions(FIRST_STAGE, "COPY"):
        *sources, target = line.split()
        for source in sources:
            place = src / target if target != "./" else src / source
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, place)
    (root / "python").mkdir()
    (root / "python" / "python").symlink_to(_python())
    for line in instructions(FIRST_STAGE, "RUN"):
        script = line.replace("/opt/", f"{root}/opt/").replace("/src", str(src))
        environ = {**os.environ, "PATH": f"{root / 'python'}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            ["sh", "-ec", script], cwd=src, env=environ, capture_output=True, text=True, timeout=800, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    check = root / "opt" / "leadline" / "bin" / "leadline-healthcheck"
    check.write_text((DEPLOY / "healthcheck.py").read_text().replace("/opt/", f"{root}/opt/"))
    check.chmod(0o555)
    return Image(root, check.parent)


def _python() -> str:
    """Python of the base image's minor version where one is here, else the one that runs this."""
    (minor,) = re.findall(r"^ARG BASE=python:(\d+\.\d+)\.", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    managed = sorted(Path(os.environ.get("PYENV_ROOT", "/nowhere")).glob(f"versions/{minor}.*/bin/python{minor}"))
    for candidate in (*map(str, managed), f"python{minor}"):
        found = shutil.which(candidate)
        if found and subprocess.run([found, "--version"], capture_output=True, check=False, timeout=60).returncode == 0:
            return found
    return str(Path(sys.executable).resolve())


def _nothing_is_left_that_only_builds(image: Image) -> None:
    """Versions are those of constraints.txt, without a package manager; the command says its version."""
    asked = "import importlib.metadata as m; print('\\n'.join(d.name + '==' + d.version for d in m.distributions()))"
    done = image.run("python", "-c", asked)
    installed = {line.lower().replace("_", "-") for line in done.stdout.split()}
    pinned = {line.lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()}
    (own,) = [line for line in installed if line.startswith("leadline==")]
    # Until Python 3.11 every new environment had setuptools.
    assert {line for line in installed - pinned - {own} if not line.startswith("setuptools==")} == set()
    assert not {line.partition("==")[0] for line in installed} & {"pip", "hatchling", "pytest"}
    shown = image.run("leadline", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "monitor" in shown.stdout
    assert not list((image.root / "opt" / "leadline").rglob("*.pyc")), "they would differ from build to build"


def _the_loop_closes(image: Image, bootstrap: str) -> None:
    """Topics, a worker that the health check finds live, `check` with its halt and release; the check fails once it is gone."""
    made = image.run("leadline", "topics", "create", "--partitions", "4", "--replication", "1", LEADLINE_BOOTSTRAP=bootstrap)
    assert made.returncode == 0, made.stderr
    (port,) = free_ports(1)
    common = {"LEADLINE_BOOTSTRAP": bootstrap, "LEADLINE_HTTP_PORT": str(port), "LEADLINE_HTTP_HOST": "127.0.0.1"}
    environ = image.environ(
        **common, LEADLINE_APP_ID=group(), LEADLINE_DATA_DIR=str(image.root / "data"), LEADLINE_LOG_JSON="true"
    )
    with (image.root / "worker.log").open("wb") as log:
        worker = subprocess.Popen([str(image.bin / "leadline"), "monitor"], cwd=image.root, env=environ, stdout=log, stderr=log)
    try:
        until("a live worker", lambda: image.run("leadline-healthcheck", **common).returncode == 0)
        checked = image.run("leadline", "check", "--timeout", "60", LEADLINE_BOOTSTRAP=bootstrap)
        assert checked.returncode == 0, checked.stdout + checked.stderr + (image.root / "worker.log").read_text()
        _the_fleet_of_compose(image, bootstrap)
    finally:
        worker.terminate()
        code = worker.wait(60)
    assert code == 0, (image.root / "worker.log").read_text()
    gone = image.run("leadline-healthcheck", **common)
    assert gone.returncode == 1
    assert "not live" in gone.stderr


def _the_fleet_of_compose(image: Image, bootstrap: str) -> None:
    """Its command, with a shorter plan: one healthy agent for a moment."""
    plan = json.loads((DEPLOY / "compose" / "fleet.json").read_text())
    plan |= {"bootstrap": bootstrap, "duration": 1, "pace": [0.2, 0.4], "agents": plan["agents"][:1]}
    (image.root / "plan.json").write_text(json.dumps(plan))
    arguments = [str(image.root / "plan.json"), str(image.root / "result.json")]
    done = image.run("python", "-m", "leadline.demo.fleet", *arguments, LEADLINE_BOOTSTRAP=bootstrap)
    assert done.returncode == 0, done.stderr
    assert json.loads((image.root / "result.json").read_text())


def _the_dashboard_starts_and_is_alive(image: Image, bootstrap: str) -> None:
    (port,) = free_ports(1)
    environ = image.environ(LEADLINE_BOOTSTRAP=bootstrap, LEADLINE_DASHBOARD_PORT=str(port))
    with (image.root / "dashboard.log").open("wb") as log:
        page = subprocess.Popen([str(image.bin / "leadline"), "dashboard"], cwd=image.root, env=environ, stdout=log, stderr=log)
    ask = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}/livez', timeout=5)"
    try:
        until("a live dashboard", lambda: page.poll() is not None or image.run("python", "-c", ask).returncode == 0)
        assert page.poll() is None, (image.root / "dashboard.log").read_text()
    finally:
        page.terminate()
        page.wait(60)


def test_what_the_image_holds_is_whole_and_closes_the_loop(bootstrap: str, tmp_path: Path) -> None:
    """One test, since what it looks at takes a minute to make."""
    image = made(tmp_path)
    _nothing_is_left_that_only_builds(image)
    _the_loop_closes(image, bootstrap)
    _the_dashboard_starts_and_is_alive(image, bootstrap)
