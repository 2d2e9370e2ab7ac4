"""The settings of the monitor: the only reader of the environment (``LEADLINE_*``)."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from leadline.contracts.text import safe
from leadline.contracts.topics import DEAD_LETTER_BYTES, DEFAULT_PARTITIONS
from leadline.errors import BrokerError, SettingsError
from leadline.security import Security
from leadline.security.connection import READERS as SECURITY_READERS

__all__ = [
    "BOOTSTRAP",
    "ClientConfigs",
    "Settings",
    "client_configs",
    "describe_settings",
    "load_settings",
    "no_broker",
    "suggested",
    "unknown_variables",
]

BOOTSTRAP: Final = "--bootstrap or LEADLINE_BOOTSTRAP"
"""Where the address of the brokers comes from, as every message says it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings(Security):
    """Everything a worker is told from outside. Times carry their unit in the name; ``_s`` is seconds.

    How it reaches the brokers safely is :class:`leadline.security.Security`, the same for the monitor and for agents.
    """

    bootstrap: str = "127.0.0.1:9092"
    """Brokers to ask first, ``host:port`` separated by commas."""
    data_dir: Path = Path("leadline-data")
    """Where the sessions table keeps its local copy. One directory a worker."""
    app_id: str = "leadline"
    """Consumer group of the monitor's workers."""
    partitions: int = DEFAULT_PARTITIONS
    """Partitions of topics that are still to be created."""
    replication: int = 1
    """Replication factor of topics that are still to be created."""
    instance_id: str = ""
    """Stable and unique name of this worker; set, a restart under the same name needs no rebalance."""
    create_topics: bool = False
    """Create topics that are missing at start, rather than refuse."""
    commit_interval_s: float = 0.1
    """At least this long between two offset commits."""
    flush_interval_s: float = 0.25
    """How long states are gathered before they are stored and their offsets committed; outputs are sent at once."""
    batch_max: int = 1000
    """Most records of one partition that are folded at once."""
    waiting_max: int = 20_000
    """Most records read from the broker that wait to be folded."""
    cache_sessions: int = 20_000
    """Most decoded session states kept in memory, beside those that are still to be stored."""
    session_timeout_s: float = 15.0
    """Silence after which the broker gives this worker's partitions to others."""
    broker_away_s: float = 120.0
    """How long to wait for a broker that is away before the worker exits."""
    drain_s: float = 20.0
    """How long a stopping worker may take to finish what it has begun."""
    dead_letter_s: float = 10.0
    """How long one batch waits for the dead-letter topic before it goes on without."""
    heartbeat_s: float = 5.0
    """How often the agents are told that the monitor is there: a record for each partition. 0: never."""
    idempotence: bool = False
    """Use the idempotent producer. Not every broker has one."""
    verify_end_offsets: bool = False
    """Ask twice for the end of the sessions changelog: some embedded brokers tell the wrong one."""
    max_request_bytes: int = DEAD_LETTER_BYTES
    """Largest record that is sent to the broker; a dead letter holds a whole event and its headers."""
    policy_file: str = ""
    """Thresholds, deadlines and modes as TOML; a change is picked up while the worker runs. Empty: the defaults."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""
    log_json: bool = False
    """One JSON object a log line."""
    ready_file: str = ""
    """A file that is written once partitions are assigned and state is restored."""
    http_port: int = 0
    """Port of the worker's own pages: `/ready`, `/live`, `/metrics` and `/`. 0: none."""
    http_host: str = "127.0.0.1"
    """Address that the pages are served on. They have no password: open them to the probes that need them, to nobody else."""
    stall_s: float = 300.0
    """How long records may wait with none committed before the worker is no longer live, and exits."""
    standby_replicas: int = 0
    """Copies of each partition's state that other workers keep up to date, so that a takeover restores little."""
    otlp_endpoint: str = ""
    """Collector that takes traces over OTLP, such as `http://127.0.0.1:4318`. Empty: none is made."""
    otlp_protocol: str = "http/protobuf"
    """`http/protobuf` or `grpc`."""
    otlp_metrics: bool = False
    """Send the metrics there too."""
    trace_ratio: float = 0.01
    """Share of the batches that led to nothing which get a span, 0 to 1."""
    fleets_max: int = 50
    """Fleets that metrics tell apart; those past it share the label `other`."""
    test_fault: str = ""
    """For tests only: the step of the work at which this worker kills itself."""
    dashboard_host: str = "127.0.0.1"
    """Address that the dashboard listens on. Beyond loopback it wants a token or a trusted proxy."""
    dashboard_port: int = 8642
    """Port that the dashboard listens on; 0: any that is free."""
    dashboard_token_file: str = ""
    """A file with the token that people look at the dashboard with. Empty: none is asked for, on loopback only."""
    dashboard_act_token_file: str = ""
    """A file with the token that people act with on the dashboard. Empty: nobody can act."""
    dashboard_user_header: str = ""
    """Header in which a trusted proxy names who has signed in, such as `X-Forwarded-User`."""
    dashboard_proxies: str = "127.0.0.1,::1"
    """Addresses and networks of the proxies whose word is taken on that, and on whether TLS was used, separated by commas."""
    dashboard_trace_url: str = ""
    """Where a trace is looked at: a URL with `{trace_id}` in it. Empty: no links."""


class ClientConfigs(NamedTuple):
    """How to reach the brokers with confluent-kafka; for the stream engine's library see ``processors.credentials``."""

    confluent: dict[str, Any]


def client_configs(settings: Settings) -> ClientConfigs:
    """Every client that the monitor and its tools open is made from this. Raises :class:`SettingsError` where a file of TLS or
    SASL cannot be used."""
    return ClientConfigs({"bootstrap.servers": settings.bootstrap, "client.id": settings.app_id, **settings.librdkafka()})


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from ``environ`` (the process environment unless given); ``overrides`` that are not ``None`` win.

    Raises :class:`SettingsError` with a sentence that names the variable (an override: the option of that name), what is wrong
    with it and what to do.
    """
    source = os.environ if environ is None else environ
    known = {**_COMMON, **{f"LEADLINE_{field.name.upper()}": field.name for field in fields(Settings)}}
    values: dict[str, Any] = {}
    for variable, name in known.items():
        text = source.get(variable)
        if text is not None and text.strip():
            values[name] = _READERS[name](variable, text.strip())
    for name, value in overrides.items():
        if value is not None:
            values[name] = _READERS[name](f"--{name.replace('_', '-')}", str(value))
    settings = replace(Settings(), **values)
    settings.check(settings.bootstrap)
    return settings


def describe_settings() -> list[tuple[str, str]]:
    """Every variable with its default, for help pages; those of TLS and SASL stand at the end."""
    default, security = Settings(), {field.name for field in fields(Security)}
    names = sorted((field.name for field in fields(Settings)), key=lambda name: name in security)
    return [(f"LEADLINE_{name.upper()}", str(getattr(default, name))) for name in names]


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each ``LEADLINE_*`` variable that is no setting: a typing error, most likely."""
    source = os.environ if environ is None else environ
    known = [variable for variable, _ in describe_settings()]
    found = []
    for variable in sorted(source):
        if variable.startswith("LEADLINE_") and variable not in known and not variable.startswith(_OF_THE_TESTS):
            near = difflib.get_close_matches(variable, known, 1, 0.85)
            found.append(f"{variable} is no setting and does nothing" + (f"; {near[0]} is" if near else ""))
    return found


def no_broker(settings: Settings, timeout_s: float, why: str) -> BrokerError:
    """What to raise where no broker answered."""
    return BrokerError(
        f"no broker answered at {settings.bootstrap} within {timeout_s:g} s ({why}): check {BOOTSTRAP}, and that the broker runs"
    )


def suggested(verb: str, settings: Settings) -> str:
    """A verb to run on the same cluster, as a message names it: ``leadline topics create --bootstrap kafka:9092``."""
    where = "" if settings.bootstrap == Settings().bootstrap else f" --bootstrap {shlex.quote(settings.bootstrap)}"
    return f"`leadline {verb}{where}`"


Reader = Callable[[str, str], Any]

_COMMON: Final = {"OTEL_EXPORTER_OTLP_ENDPOINT": "otlp_endpoint", "OTEL_EXPORTER_OTLP_PROTOCOL": "otlp_protocol"}
"""Variables of OpenTelemetry's own that count where Leadline's are not set."""

_OF_THE_TESTS: Final = "LEADLINE_TEST_"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,255}", re.ASCII)
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def _wrong(variable: str, text: str, problem: str, remedy: str) -> SettingsError:
    shown = safe(text, 80)
    return SettingsError(f"{variable} is {shown!r}: {problem}. {remedy}")


def _integer(least: int, most: int) -> Reader:
    def read(variable: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise _wrong(variable, text, "that is no whole number", f"Give one from {least} to {most}.") from None
        if not least <= number <= most:
            raise _wrong(variable, text, "that is out of range", f"Give a whole number from {least} to {most}.")
        return number

    return read


def _seconds(least: float, most: float) -> Reader:
    def read(variable: str, text: str) -> float:
        remedy = f"Give seconds from {least:g} to {most:g}."
        try:
            number = float(text)
        except ValueError:
            raise _wrong(variable, text, "that is no number", remedy) from None
        if not least <= number <= most:
            raise _wrong(variable, text, "that is out of range", remedy)
        return number

    return read


def _flag(variable: str, text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise _wrong(variable, text, "that is neither true nor false", "Give true or false.")


def _name(variable: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise _wrong(variable, text, "a name has 1 to 200 letters, digits, dots, dashes or underscores", "Choose another name.")
    return text


def _servers(variable: str, text: str) -> str:
    servers = [part.strip() for part in text.split(",")]
    for server in servers:
        found = _SERVER.fullmatch(server)
        if found is None or not 0 < int(found[1]) < 65536:
            raise _wrong(
                variable,
                text,
                f"{safe(server, 80)!r} is no host:port"
                if server
                else "one of the servers is empty"
                if text
                else "no server is named",
                "Give host:port, several separated by commas, such as kafka-1:9092,kafka-2:9092.",
            )
    return ",".join(servers)


def _host(variable: str, text: str) -> str:
    if not _HOST.fullmatch(text):
        raise _wrong(variable, text, "that is no host name or address", "Give one such as 127.0.0.1, or 0.0.0.0 for all of them.")
    return text


def _collector(variable: str, text: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9._:\[\]-]{1,255}(?:/[\x21-\x7e]*)?", text):
        raise _wrong(variable, text, "that is no address of a collector", "Give one such as http://127.0.0.1:4318.")
    return text


def _protocol(variable: str, text: str) -> str:
    if text not in ("http/protobuf", "grpc"):
        raise _wrong(variable, text, "that is no protocol that can be spoken", "Give http/protobuf or grpc.")
    return text


def _share(variable: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _wrong(variable, text, "that is no number", "Give one from 0 to 1.") from None
    if not 0.0 <= number <= 1.0:
        raise _wrong(variable, text, "that is out of range", "Give a number from 0 to 1.")
    return number


def _path(variable: str, text: str) -> Path:
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise _wrong(variable, text, "that is a file", "Give a directory; it is created where it is missing.")
    return path


def _level(variable: str, text: str) -> str:
    if text.upper() not in _LEVELS:
        raise _wrong(variable, text, "that is no log level", f"Give one of {', '.join(_LEVELS)}.")
    return text.upper()


def _text(_variable: str, text: str) -> str:
    return text


def _trace_url(variable: str, text: str) -> str:
    if not text.startswith(("http://", "https://")) or "{trace_id}" not in text:
        raise _wrong(variable, text, "that is no URL of traces", "Give one with {trace_id} in it, https://traces/{trace_id}.")
    return text


_READERS: dict[str, Reader] = {
    **SECURITY_READERS,
    "bootstrap": _servers,
    "data_dir": _path,
    "app_id": _name,
    "partitions": _integer(1, 10_000),
    "replication": _integer(1, 100),
    "instance_id": _name,
    "create_topics": _flag,
    "commit_interval_s": _seconds(0.0, 60.0),
    "flush_interval_s": _seconds(0.0, 60.0),
    "batch_max": _integer(1, 100_000),
    "waiting_max": _integer(1, 10_000_000),
    "cache_sessions": _integer(0, 10_000_000),
    "session_timeout_s": _seconds(6.0, 600.0),
    "broker_away_s": _seconds(1.0, 86_400.0),
    "drain_s": _seconds(0.1, 3_600.0),
    "dead_letter_s": _seconds(0.1, 600.0),
    "heartbeat_s": _seconds(0.0, 3_600.0),
    "idempotence": _flag,
    "verify_end_offsets": _flag,
    "max_request_bytes": _integer(1_000, 100_000_000),
    "policy_file": _text,
    "log_level": _level,
    "log_json": _flag,
    "ready_file": _text,
    "http_port": _integer(0, 65_535),
    "http_host": _host,
    "stall_s": _seconds(1.0, 86_400.0),
    "standby_replicas": _integer(0, 10),
    "otlp_endpoint": _collector,
    "otlp_protocol": _protocol,
    "otlp_metrics": _flag,
    "trace_ratio": _share,
    "fleets_max": _integer(1, 1_000),
    "test_fault": _text,
    "dashboard_host": _text,
    "dashboard_port": _integer(0, 65_535),
    "dashboard_token_file": _text,
    "dashboard_act_token_file": _text,
    "dashboard_user_header": _name,
    "dashboard_proxies": _text,
    "dashboard_trace_url": _trace_url,
}
