"""Apache Kafka with TLS, SASL and the generated ACLs: what must work works, and what must not is refused by the broker."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from leadline.agent import connect
from leadline.cli.round_trip import round_trip
from leadline.contracts.topics import TOPICS
from leadline.errors import BrokerError, TopicMismatch
from leadline.processors import topics as declared
from leadline.processors import worker
from leadline.processors.credentials import aiokafka_config
from leadline.security import Security
from leadline.settings import Settings, client_configs
from tests.processors.running import MONITOR, RunningWorker, Topics, bodies, until
from tests.security.certificates import Authority
from tests.security.secure_kafka import PASSWORDS, SecureKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


def token(user: str, life_s: float = 3600) -> str:
    """An unsigned JSON web token, as a development broker takes it."""
    claims = {"sub": user, "iat": int(time.time()) - 5, "exp": int(time.time() + life_s)}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def security(secure: SecureKafka, folder: Path, user: str, way: str) -> dict[str, Any]:
    """The settings with which ``user`` comes in by ``way``."""
    ca = str(secure.authority.file)
    if way == "mutual":
        password = b"key-password"
        certificate, key = secure.authority.issue(user, password=password)
        (folder / f"{user}.key-password").write_bytes(password + b"\n")
        return {
            "bootstrap": secure.mutual,
            "security_protocol": "SSL",
            "tls_ca_file": ca,
            "tls_cert_file": str(certificate),
            "tls_key_file": str(key),
            "tls_key_password_file": str(folder / f"{user}.key-password"),
        }
    given = {"bootstrap": secure.sasl, "security_protocol": "SASL_SSL", "sasl_mechanism": way, "tls_ca_file": ca}
    if way == "OAUTHBEARER":
        (folder / f"{user}.token").write_text(token(user))
        return {**given, "sasl_token_file": str(folder / f"{user}.token")}
    (folder / f"{user}.password").write_text(PASSWORDS[user] + "\n")
    return {**given, "sasl_username": user, "sasl_password_file": str(folder / f"{user}.password")}


WAYS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "mutual")


@pytest.fixture
def plain(secure: SecureKafka) -> Iterator[Topics]:
    opened = Topics(secure.bootstrap)
    yield opened
    opened.close()


@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "OAUTHBEARER", "mutual"])
def test_a_worker_and_an_agent_close_the_loop_with_exactly_the_generated_permissions(
    secure: SecureKafka, plain: Topics, tmp_path: Path, way: str
) -> None:
    """The worker starts (which checks the topics), reads, writes and commits; the agent hears its halt. No secret is logged."""
    given = security(secure, tmp_path, "monitor", way)
    running = RunningWorker(given.pop("bootstrap"), tmp_path, MONITOR, create_topics="", app_id="leadline", **given)
    try:
        running.ready()
        mine = security(secure, tmp_path, "agents", way)
        with connect(mine.pop("bootstrap"), fleet="research", security=Security(**mine)) as client:
            came = round_trip(client, f"secure-{way}", 60)
        assert came.missing == "", running.log
        seen = [one["rule"] for one in bodies(plain.read("leadline.violations")) if one["session_id"] == came.session_id]
        assert seen == ["inversion"]
        until("committed offsets", lambda: plain.committed("leadline") == sum(plain.ends("leadline.events").values()))
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()
    assert not any(secret in running.log for secret in (*PASSWORDS.values(), "key-password"))
    assert "not authorized" not in running.log.lower()
    assert "authorization" not in running.log.lower()


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_in_works_for_each_client_library(secure: SecureKafka, tmp_path: Path, way: str) -> None:
    """The same settings give the tools' client, which checks the topics, and the stream engine's, which finds their ends."""
    settings = Settings(app_id="leadline", **security(secure, tmp_path, "monitor", way))
    findings = await asyncio.to_thread(declared.check, settings)
    assert [finding.problem for finding in findings] == [""] * len(TOPICS)
    consumer = AIOKafkaConsumer(**aiokafka_config(settings), group_id="leadline")
    await consumer.start()
    try:
        assert set(await consumer.topics()) >= {topic.name for topic in TOPICS}
    finally:
        await consumer.stop()


def allowed(settings: Settings, topic: str) -> tuple[bool, bool]:
    """Whether these settings may write a topic, and read it, as the broker says."""
    config = {**client_configs(settings).confluent, "log_level": 0}
    errors: list[Any] = []
    producer = Producer({**config, "message.timeout.ms": 20_000})
    # What no reader takes for its own: the worker is down.
    producer.produce(topic, b"{}", b"probe", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(20)
    group = {"group.id": "leadline", "enable.auto.commit": False}  # To commit would wait, at the end, for a group it may not use.
    consumer = Consumer({**config, **group, "auto.offset.reset": "earliest", "enable.partition.eof": True})
    if consumer.list_topics(topic, timeout=20).topics[topic].error is not None:
        consumer.close()
        return errors[0] is None, False  # Not even that it exists is told.
    consumer.assign([TopicPartition(topic, 0, 0)])

    def answered() -> Any:
        # The client asks after its group too, though it joins none.
        message = consumer.poll(0.1)
        of_the_group = message is not None and message.error() and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        return None if of_the_group else message

    answer = until("an answer", answered)
    consumer.close()
    assert errors[0] is None or errors[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, errors
    seen = answer.error()
    may_read = seen is None or seen.code() == KafkaError._PARTITION_EOF
    assert may_read or seen.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, seen
    return errors[0] is None, may_read


@pytest.mark.parametrize(
    ("user", "writes", "reads"),
    [
        ("agents", ["events"], ["commands"]),
        ("monitor", ["events", "violations", "commands", "dead-letters", "sessions"], ["events", "sessions", "silences"]),
        ("operators", [], ["events", "violations", "commands", "dead-letters", "sessions", "silences"]),
        ("dashboard", ["events", "silences"], ["events", "violations", "commands", "sessions", "silences"]),
    ],
)
def test_the_broker_refuses_what_is_not_a_partys_own(
    secure: SecureKafka, tmp_path: Path, user: str, writes: list[str], reads: list[str]
) -> None:
    """An agent that writes a command is refused, and so is all else that the table does not give."""
    settings = Settings(**security(secure, tmp_path, user, "SCRAM-SHA-512"))
    found = {topic.name: allowed(settings, topic.name) for topic in TOPICS}
    assert [name for name, (may_write, _) in found.items() if may_write] == [f"leadline.{name}" for name in writes]
    assert [name for name, (_, may_read) in found.items() if may_read] == [f"leadline.{name}" for name in reads]


def test_topics_are_created_with_the_admins_permissions_alone(secure: SecureKafka, tmp_path: Path) -> None:
    """What exists stays; a monitor cannot create what is missing."""
    admin = Settings(**security(secure, tmp_path, "admin", "PLAIN"))
    root = AdminClient({"bootstrap.servers": secure.bootstrap})
    root.delete_topics(["leadline.dead-letters"])["leadline.dead-letters"].result(30)
    until("a topic that is gone", lambda: "leadline.dead-letters" not in root.list_topics(timeout=10).topics)
    with pytest.raises(TopicMismatch, match=r"Authorization failed.*rights of this client"):
        declared.create(Settings(**security(secure, tmp_path, "monitor", "PLAIN")))
    assert declared.create(admin) == ["leadline.dead-letters"]


@pytest.mark.parametrize("what", ["password", "authority", "no certificate"])
def test_who_is_not_let_in_is_told_why(secure: SecureKafka, tmp_path: Path, what: str) -> None:
    """The sentence names the cause; it is not "no broker"."""
    given = security(secure, tmp_path, "monitor", "mutual" if what == "no certificate" else "SCRAM-SHA-256")
    if what == "password":
        Path(given["sasl_password_file"]).write_text("wrong")
    elif what == "authority":
        given["tls_ca_file"] = str(Authority(tmp_path / "other", "another").file)
    else:
        given |= {"tls_cert_file": "", "tls_key_file": "", "tls_key_password_file": ""}
    said = {"password": "[Aa]uthentication failed", "authority": "certificate verify failed", "no certificate": "[Cc]ertificate"}
    with pytest.raises(BrokerError, match=rf"the connection was refused: .*{said[what]}"):
        declared.check(Settings(**given), 5.0)
