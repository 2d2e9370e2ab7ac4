"""Brokers for tests: the embedded one, Apache Kafka, or a cluster that exists already.

``LEADLINE_TEST_BROKERS`` names what the tests run on: ``embedded`` (the default), ``kafka`` or ``embedded,kafka``.
``LEADLINE_TEST_BOOTSTRAP`` puts an existing cluster in their place.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from leadline.broker import EmbeddedBroker, handshake
from leadline.broker.kept import kept, kept_pid
from tests.support import java
from tests.support.ports import free_ports, port_owner

__all__ = ["ApacheKafka", "Broker", "KafkaNode", "chosen", "prepare", "start", "unavailable"]

_ROOT = Path(__file__).resolve().parents[2]
_POM = _ROOT / "tests" / "kafka" / "pom.xml"
_CACHE = _ROOT / ".cache" / "kafka"
_HOST = "127.0.0.1"
_STOP_S = 30.0
_FETCH_S = 300.0


@dataclass(frozen=True, slots=True)
class Broker:
    """What a test sees: an address, and ``embedded``, ``kafka`` or ``external``."""

    bootstrap: str
    kind: str


def chosen(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The kinds of broker that this run is for. Raises ValueError on a name that is none."""
    if environ.get("LEADLINE_TEST_BOOTSTRAP"):
        return ["external"]
    names = [name.strip() for name in environ.get("LEADLINE_TEST_BROKERS", "embedded").split(",") if name.strip()]
    unknown = [name for name in names if name not in ("embedded", "kafka")]
    if unknown or not names:
        raise ValueError(f"LEADLINE_TEST_BROKERS may hold embedded and kafka, comma between; got {unknown or 'nothing'}")
    return names


def unavailable(environ: Mapping[str, str] = os.environ) -> str | None:
    """Why Apache Kafka cannot be started here, as a sentence; None when it can, as far as can be told offline."""
    if java.find(environ) is None:
        return f"Apache Kafka needs Java {java.LEAST} or later: there is none in JAVA_HOME, on the PATH or below /usr/lib/jvm"
    if environ.get("KAFKA_HOME"):
        libs = Path(environ["KAFKA_HOME"]) / "libs"
        return None if any(libs.glob("kafka_*.jar")) else f"KAFKA_HOME has no Kafka jars: {libs} holds no kafka_*.jar"
    if not _cached() and shutil.which("mvn") is None:
        return "Apache Kafka's jars are not here yet and mvn is not on the PATH; or set KAFKA_HOME"
    return None


def _cached() -> bool:
    stamp = _CACHE / "pom.xml"
    return stamp.is_file() and stamp.read_bytes() == _POM.read_bytes()


def kafka_jars() -> Path:
    """The folder with Kafka's jars: KAFKA_HOME's, or those of the pom, fetched once. May block for minutes then."""
    if os.environ.get("KAFKA_HOME"):
        return Path(os.environ["KAFKA_HOME"]) / "libs"
    libs = _CACHE / "libs"
    if not _cached():
        fresh = _CACHE / f"libs.{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
        try:
            done = subprocess.run(
                [*command, "-DincludeScope=runtime", f"-DoutputDirectory={fresh}"],
                capture_output=True,
                text=True,
                timeout=_FETCH_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"mvn did not fetch Kafka's jars within {_FETCH_S:g} s; is Maven Central reachable?") from None
        if done.returncode != 0:
            said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            raise RuntimeError(f"mvn could not fetch Kafka's jars: {' '.join(said[:1]) or 'it does not say why'}")
        shutil.rmtree(libs, ignore_errors=True)
        fresh.rename(libs)
        shutil.copyfile(_POM, _CACHE / "pom.xml")
    return libs


def prepare() -> str | None:
    """Fetch what Apache Kafka needs; why that cannot be had, or None when it is all here. May block for minutes."""
    reason = unavailable()
    if reason is None:
        try:
            kafka_jars()
        except (RuntimeError, OSError) as error:
            return str(error)
    return reason


def _java(memory: str, *arguments: str) -> list[str]:
    # The flags make a JVM of this size start soonest, at the price of peak speed that no test needs.
    options = [f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    program = java.find()
    assert program is not None
    return [program, *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{kafka_jars()}/*", *arguments]


@dataclass
class KafkaNode:
    """One node, broker and controller in one; keeps its ports and its data across stop, kill and start."""

    node_id: int
    directory: Path
    port: int
    controller_port: int
    directory_id: str = field(default_factory=lambda: _kafka_uuid())
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{_HOST}:{self.port}"

    @property
    def voter(self) -> str:
        """This node as a member of the first controller quorum."""
        return f"{self.node_id}@{_HOST}:{self.controller_port}:{self.directory_id}"

    def start(self) -> None:
        """Start the process; does not wait for it to be ready."""
        assert self.process is None
        with (self.directory / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                kept(
                    _java("512m", "kafka.Kafka", str(self.directory / "server.properties")),
                    grace=_STOP_S,
                    scratch=self.directory / "nothing",
                ),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None before it runs."""
        return kept_pid(self._output())

    def wait_ready(self, timeout: float = 180.0) -> None:
        """Block until the node's own process answers on its port. Raises RuntimeError with its last output."""
        assert self.process is not None
        deadline = time.monotonic() + timeout
        while True:
            if self.process.poll() is None and handshake.answers(_HOST, self.port, timeout=1.0):
                owner = port_owner(self.port)
                if owner in (None, self.pid):
                    return
                raise RuntimeError(f"port {self.port} belongs to process {owner}, not to the node just started")
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = self._output()
                self.kill()
                raise RuntimeError(f"Apache Kafka node {self.node_id} did not come up:\n{log[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after a while. Blocks until the process is gone."""
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(_STOP_S + 5)
            self.process = None

    def kill(self) -> None:
        """SIGKILL; blocks until the process is gone."""
        if self.process is not None:
            if self.process.poll() is None:
                os.kill(self.pid or self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _output(self) -> str:
        return (self.directory / "broker.log").read_text(errors="replace")


class ApacheKafka:
    """A KRaft cluster on the loopback address, of one node unless ``nodes`` says more.

    Replication factors and min.insync.replicas follow the number of nodes (three: 3 and 2). ``settings`` are added
    to every node's server.properties and win over the defaults. Data lives below ``directory``, which the caller
    owns and removes.
    """

    def __init__(self, directory: Path, *, nodes: int = 1, settings: Mapping[str, str] | None = None) -> None:
        reason = unavailable()
        if reason is not None:
            raise RuntimeError(reason)
        ports = free_ports(2 * nodes)
        self.cluster_id = _kafka_uuid()
        self.nodes = [
            KafkaNode(index + 1, directory / f"node-{index + 1}", ports[2 * index], ports[2 * index + 1])
            for index in range(nodes)
        ]
        self._settings = dict(settings or {})
        self._formatted = False

    @property
    def bootstrap(self) -> str:
        """All nodes, for ``bootstrap.servers``."""
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self) -> str:
        """Format the storage on first use, start every node, wait until all answer. Returns ``bootstrap``."""
        if not self._formatted:
            for node in self.nodes:
                self._format(node)
            self._formatted = True
        try:
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                node.wait_ready()
            self._wait_registered(180.0)
        except BaseException:
            self.kill()
            raise
        return self.bootstrap

    def stop(self) -> None:
        """Stop all nodes in order; their data stays."""
        for node in reversed(self.nodes):
            node.stop()

    def kill(self) -> None:
        """Kill -9 all nodes; their data stays."""
        for node in self.nodes:
            node.kill()

    def revive(self) -> None:
        """Start again the nodes that are down."""
        down = [node for node in self.nodes if node.process is None or node.process.poll() is not None]
        for node in down:
            node.kill()
            node.start()
        for node in down:
            node.wait_ready()
        self._wait_registered(180.0)

    def restart(self) -> None:
        """Stop and start on the same ports with the same data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        # Nobody reads the data again: an orderly stop would only cost seconds.
        self.kill()

    def properties(self, node: KafkaNode) -> dict[str, str]:
        """The node's server.properties."""
        replicas = str(min(3, len(self.nodes)))
        in_sync = "2" if len(self.nodes) >= 3 else "1"
        listeners = f"PLAINTEXT://{_HOST}:{node.port}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "listeners": f"{listeners},CONTROLLER://{_HOST}:{node.controller_port}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(f"{_HOST}:{n.controller_port}" for n in self.nodes),
            "log.dirs": str(node.directory / "data"),
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # After kill -9 a node may come back only when the controller has given its former self up.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "3000",
            **self._settings,
        }

    def _wait_registered(self, timeout: float) -> None:
        """A node answers before the controller lets it hold partitions; wait until that too is so, for all."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        deadline = time.monotonic() + timeout
        found = 0
        while found < len(self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} of {len(self.nodes)} Kafka nodes registered within {timeout:g} s")
            with contextlib.suppress(KafkaException):
                found = len(admin.list_topics(timeout=2).brokers)
            if found < len(self.nodes):
                time.sleep(0.05)

    def _format(self, node: KafkaNode) -> None:
        node.directory.mkdir(parents=True)
        file = node.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.properties(node).items()))
        quorum: Sequence[str] = (
            ["--standalone"] if len(self.nodes) == 1 else ["--initial-controllers", ",".join(other.voter for other in self.nodes)]
        )
        command = _java("128m", "kafka.tools.StorageTool", "format", *quorum, "-t", self.cluster_id, "-c", str(file))
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Kafka's storage could not be formatted:\n{(done.stdout + done.stderr)[-2000:]}")


def _kafka_uuid() -> str:
    """A random id as Kafka writes it: 22 characters of URL-safe base64, never with a leading dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def start(kind: str, directory: Path) -> tuple[Broker, EmbeddedBroker | ApacheKafka | None]:
    """Start a broker of ``kind``; the second value is what to stop (None for a cluster that is not ours)."""
    if kind == "external":
        return Broker(os.environ["LEADLINE_TEST_BOOTSTRAP"], kind), None
    if kind == "kafka":
        kafka = ApacheKafka(directory)
        return Broker(kafka.start(), kind), kafka
    embedded = EmbeddedBroker()
    return Broker(embedded.start(), kind), embedded


if __name__ == "__main__":
    sys.exit(prepare())
