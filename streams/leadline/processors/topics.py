"""The topics on the cluster against THE table (:mod:`leadline.contracts.topics`): look, create, refuse.

Topics are created from the table before a worker starts, the sessions changelog among them: a broker or an engine that
creates them by itself picks the wrong partition count or the wrong cleanup policy, and neither can be mended later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from leadline.contracts.text import plural
from leadline.contracts.topics import DEAD_LETTERS, EVENTS, SESSIONS, TOPICS, Topic
from leadline.errors import BrokerError, TopicMismatch
from leadline.processors.logs import with_fields
from leadline.security.refusals import Refusals
from leadline.settings import BOOTSTRAP, Settings, client_configs, no_broker, suggested

__all__ = [
    "CHECK_S",
    "CREATE_S",
    "Finding",
    "check",
    "create",
    "ensure",
    "identity",
    "problems",
    "require",
    "require_events",
    "require_same",
    "require_seen",
]

log = logging.getLogger(__name__)

CHECK_S: Final = 10.0
CREATE_S: Final = 30.0
"""How long a broker may take to answer, unless told otherwise."""

_REFUSALS: Final = (
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
"""Answers to the creation of a topic that stay the same until somebody changes something."""


class Finding(NamedTuple):
    """One topic as it is and as it should be. ``problem`` and ``warning`` are empty where all is well.

    With a problem no worker starts; with a warning it does, and logs it. ``remedy`` says what to do about either.
    """

    topic: str
    partitions: int | None
    """``None``: there is no such topic."""
    expected: int | None
    """``None``: any number will do."""
    problem: str
    remedy: str
    warning: str = ""


def check(settings: Settings, timeout_s: float = CHECK_S) -> list[Finding]:
    """Compare every topic of the table with the cluster: partition counts, and of the settings those that matter, where the
    broker tells them. Raises :class:`BrokerError` when no broker answers in time."""
    admin = _Admin(settings)
    counts = _counts(admin, settings, timeout_s)
    configs = _configs(admin, [topic.name for topic in TOPICS if topic.name in counts], timeout_s)
    events = counts.get(EVENTS.name)
    make = suggested("topics create", settings)
    return [_finding(topic, counts.get(topic.name), events, configs.get(topic.name, {}), make) for topic in TOPICS]


def _finding(
    topic: Topic, count: int | None, events: int | None, config: Mapping[str, str], make: str = "`leadline topics create`"
) -> Finding:
    expected = events if topic.partitioned_as_events else None
    if count is None:
        return Finding(topic.name, None, expected, f"topic {topic.name} does not exist", _creation(expected, make))
    if expected is not None and count != expected:
        return Finding(
            topic.name,
            count,
            expected,
            f"topic {topic.name} has {plural(count, 'partition')} but {EVENTS.name} has {expected}; they must be equal",
            f"Delete {topic.name} and create it again with {plural(expected, 'partition')} ({make}); "
            f"partitions of {EVENTS.name} must never be added to.",
        )
    return _configured(topic, config, Finding(topic.name, count, expected, "", ""))


def _configured(topic: Topic, config: Mapping[str, str], finding: Finding) -> Finding:
    """``finding`` with what its settings lack, if anything; a setting that the broker doesn't tell is passed over."""

    def differs(name: str) -> str:
        return f"topic {topic.name} has {name}={config[name]} but needs {name}={topic.config[name]}"

    def set_it(name: str) -> str:
        return f"Set it: kafka-configs.sh --alter --topic {topic.name} --add-config {name}={topic.config[name]}."

    policy = {part.strip() for part in config.get("cleanup.policy", "compact").split(",")}
    if topic is SESSIONS and policy != {"compact"}:
        problem = f"{differs('cleanup.policy')}; deletion by age forgets sessions that are still open"
        return finding._replace(problem=problem, remedy=set_it("cleanup.policy"))
    if topic is EVENTS and config.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
        warning = f"{differs('message.timestamp.type')}; receive times are then taken from the clock of each worker"
        return finding._replace(warning=warning, remedy=set_it("message.timestamp.type"))
    name = "max.message.bytes"
    if topic is DEAD_LETTERS and int(config.get(name, topic.config[name])) < int(topic.config[name]):
        return finding._replace(warning=f"{differs(name)}; the largest dead letters are lost", remedy=set_it(name))
    return finding


def _creation(count: int | None, make: str) -> str:
    wanted = "" if count is None else f" with {plural(count, 'partition')}, as {EVENTS.name} has"
    return f"Create it{wanted}: run {make}, or start the monitor with LEADLINE_CREATE_TOPICS=true."


def problems(findings: Iterable[Finding]) -> list[str]:
    """What is wrong and what to do about it, by topic; one sentence for all topics that are missing."""
    wrong = [finding for finding in findings if finding.problem]
    missing = [finding for finding in wrong if finding.partitions is None]
    told = [f"{finding.problem}. {finding.remedy}" for finding in wrong if finding.partitions is not None or len(missing) == 1]
    if len(missing) > 1:
        *others, last = (finding.topic for finding in missing)
        telling = next((finding for finding in missing if finding.expected is not None), missing[0])
        remedy = telling.remedy.replace("Create it", "Create them", 1)
        told.insert(0, f"topics {', '.join(others)} and {last} do not exist. {remedy}")
    return told


def require(findings: list[Finding]) -> int:
    """The partition count, when all is well; else raises :class:`TopicMismatch` with what is and what should be, and what to
    do."""
    told = problems(findings)
    if told:
        raise TopicMismatch(" ".join(told))
    return next(finding.partitions or 0 for finding in findings if finding.topic == EVENTS.name)


def create(settings: Settings, timeout_s: float = CREATE_S) -> list[str]:
    """Create what is missing and return the names; what exists is left as it is.

    New topics take the partition count of ``leadline.events`` where it exists, else ``settings.partitions``.
    Raises :class:`TopicMismatch` when the cluster refuses to make a topic like that, :class:`BrokerError` when it fails.
    """
    admin = _Admin(settings)
    counts = _counts(admin, settings, timeout_s)
    partitions = _partitions(counts, settings)
    missing = [topic for topic in TOPICS if topic.name not in counts]
    if not missing:
        return []
    new = [NewTopic(topic.name, partitions, settings.replication, config=dict(topic.config)) for topic in missing]
    created = []
    for name, future in admin.create_topics(new, operation_timeout=timeout_s, request_timeout=timeout_s).items():
        try:
            future.result(timeout_s + 5)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            raise _not_created(error.args[0], name, partitions, settings.replication) from None
        created.append(name)
    _await_visible(admin, settings, {topic.name for topic in missing}, timeout_s)
    return created


def _not_created(error: KafkaError, name: str, partitions: int, replication: int) -> BrokerError | TopicMismatch:
    why = error.str().rstrip(". ")
    size = f"{plural(partitions, 'partition')} and {plural(replication, 'replica')}"
    said = f"topic {name} could not be created with {size}: {why}"
    if error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        advice = "Give no more replicas than there are brokers: --replication 1 for a single one (or LEADLINE_REPLICATION=1)."
    else:
        advice = "Check what the cluster allows, and the rights of this client."
    return (TopicMismatch if error.code() in _REFUSALS else BrokerError)(f"{said}. {advice}")


def _partitions(counts: Mapping[str, int], settings: Settings) -> int:
    """As many as ``leadline.events`` has, or those that must have as many; only where there are none, what the settings say."""
    kept = [counts[topic.name] for topic in TOPICS if topic.partitioned_as_events and topic.name in counts]
    return counts.get(EVENTS.name) or max(kept, default=settings.partitions)


def ensure(settings: Settings) -> int:
    """What a worker does at start: wait for the broker, create if it may, and go on only if all is well.

    Returns the partition count. Raises :class:`BrokerError` past ``settings.broker_away_s``, or :class:`TopicMismatch`.
    """
    deadline = time.monotonic() + settings.broker_away_s
    timeout_s = min(10.0, settings.broker_away_s)
    waiting = False
    while True:
        try:
            if settings.create_topics:
                create(settings, timeout_s)
            findings = check(settings, timeout_s)
            partitions = require(findings)
            for finding in findings:
                if finding.warning:
                    log.warning("%s. %s", finding.warning, finding.remedy)
            return partitions
        except BrokerError as error:
            if not waiting:
                log.warning("waiting for a broker", extra=with_fields(at=settings.bootstrap, limit_s=settings.broker_away_s))
                waiting = True
            if time.monotonic() >= deadline:
                raise BrokerError(f"{error}; waited {settings.broker_away_s:g} s in all (LEADLINE_BROKER_AWAY_S)") from None
            time.sleep(0.5)


def identity(settings: Settings, timeout_s: float = 10.0) -> str | None:
    """What tells this ``leadline.events`` from one that is made anew under its name; ``None`` where the broker does not say."""
    admin = _Admin(settings)  # What it is asked ends with it.
    try:
        found = admin.describe_topics(TopicCollection([EVENTS.name]), request_timeout=timeout_s)
        known = found[EVENTS.name].result(timeout_s + 5).topic_id
    except (KafkaException, TimeoutError):
        return None
    text = str(known)
    return text if known is not None and text.strip("A=-0") else None


def require_events(settings: Settings, known: str | None, timeout_s: float = 10.0) -> None:
    """Refuse to go on where ``leadline.events`` is gone, or is another than ``known`` (:func:`identity`); one question, so that a
    worker may ask it again and again.

    Raises :class:`TopicMismatch`; :class:`BrokerError` when no broker answers.
    """
    admin = _Admin(settings)  # What it is asked ends with it.
    try:
        found = admin.describe_topics(TopicCollection([EVENTS.name]), request_timeout=timeout_s)
        now = str(found[EVENTS.name].result(timeout_s + 5).topic_id)
    except (KafkaException, TimeoutError) as error:
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            raise TopicMismatch(
                f"topic {EVENTS.name} is gone. Nothing was committed past what was stored. Run "
                f"{suggested('topics check', settings)}, then start the worker again."
            ) from None
        raise no_broker(settings, timeout_s, str(error)) from None
    if known is not None and now.strip("A=-0") and now != known:
        raise _anew(settings)


def require_same(settings: Settings, known: str | None) -> None:
    """Refuse to go on where ``leadline.events`` is gone, or is another than ``known`` (:func:`identity`).

    Raises :class:`TopicMismatch`; :class:`BrokerError` when no broker answers.
    """
    require(check(settings))
    now = identity(settings)
    if known is not None and now is not None and now != known:
        raise _anew(settings)


def _anew(settings: Settings) -> TopicMismatch:
    return TopicMismatch(
        f"topic {EVENTS.name} was made anew while this worker ran; the sessions in {SESSIONS.name} belong to the old one. "
        f"To begin without them, stop all workers, delete {SESSIONS.name} and the data directories, and run "
        f"{suggested('topics create', settings)}."
    )


def require_seen(watermarks: Mapping[int, int], ends: Mapping[int, int]) -> None:
    """Refuse to work on states of another log: raises :class:`TopicMismatch` where they have seen an event that isn't there.

    By partition: the highest event offset that any restored state has seen, and the end offset of ``leadline.events``. Events
    below a state's watermark are taken for repeated ones, so those of a topic that was made anew would be passed over silently.
    """
    for partition, seen in sorted(watermarks.items()):
        end = ends.get(partition, 0)
        if seen >= end:
            raise TopicMismatch(
                f"partition {partition} of {EVENTS.name} ends at offset {end}, but the sessions in {SESSIONS.name} have seen "
                f"offset {seen}: {EVENTS.name} was made anew or lost records, and new events would be taken for old ones. Check "
                f"{BOOTSTRAP}; to begin without the old sessions, stop all workers, delete {SESSIONS.name} and the data "
                "directories, and run `leadline topics create`."
            )


class _Admin(AdminClient):  # type: ignore[misc]
    def __init__(self, settings: Settings) -> None:
        self.refusals = Refusals()
        # Its own log lines about each refused connection add nothing: what matters is raised.
        quiet = {"log_level": 0, "socket.timeout.ms": 10_000, "error_cb": self.refusals}
        super().__init__({**client_configs(settings).confluent, **quiet})


def _counts(admin: _Admin, settings: Settings, timeout_s: float) -> dict[str, int]:
    """Partition counts of the topics that exist. Asks for all topics: asking for one by name may create it."""
    try:
        listed: dict[str, Any] = admin.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise no_broker(settings, timeout_s, admin.refusals.why(admin, error.args[0].str())) from None
    return {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None and topic.partitions}


def _configs(admin: _Admin, names: Iterable[str], timeout_s: float) -> dict[str, dict[str, str]]:
    """The settings of each topic, of those for which the broker tells them to this client."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    found: dict[str, dict[str, str]] = {}
    if resources:
        for resource, future in admin.describe_configs(resources, request_timeout=timeout_s).items():
            try:
                entries = future.result(timeout_s + 5)
            except (KafkaException, TimeoutError) as error:
                log.info("the settings of topic %s cannot be read: %s", resource.name, error)
                continue
            found[resource.name] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return found


def _await_visible(admin: _Admin, settings: Settings, names: set[str], timeout_s: float) -> None:
    """A topic that was just created takes a moment to appear in the metadata."""
    deadline = time.monotonic() + timeout_s
    while names - _counts(admin, settings, timeout_s).keys():
        if time.monotonic() > deadline:
            raise BrokerError(f"topics {', '.join(sorted(names))} were created but do not appear; is the cluster healthy?")
        time.sleep(0.1)
