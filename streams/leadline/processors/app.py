"""The Faust app of one worker, from settings alone: nothing happens at import, nothing is global."""

from __future__ import annotations

import os
import re
import socket
from uuid import uuid4

from leadline.contracts.topics import EVENTS
from leadline.processors.contact import Contact
from leadline.processors.credentials import credentials
from leadline.processors.engine import MonitorApp
from leadline.processors.fencing import Ownership
from leadline.processors.fetch import Fetch, consumer_config
from leadline.processors.transport import SCHEME, register
from leadline.settings import Settings

__all__ = ["make_app"]


def make_app(settings: Settings, partitions: int | None = None) -> MonitorApp:
    """A new app, not started. ``partitions``: the count found on the cluster, where it is known."""
    name = settings.instance_id or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
    request_timeout = max(settings.session_timeout_s + 5, 30.0)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    register()
    app = MonitorApp(
        settings.app_id,
        broker=[f"{SCHEME}://{server}" for server in settings.bootstrap.split(",")],
        broker_client_id=settings.app_id,
        broker_credentials=credentials(settings),
        datadir=settings.data_dir.absolute(),
        store="rocksdb://",
        autodiscover=False,
        processing_guarantee="at_least_once",
        # The topics come from the table of topics, never from the engine.
        topic_allow_declare=False,
        topic_disable_leader=True,
        topic_partitions=partitions or settings.partitions,
        topic_replication_factor=settings.replication,
        table_standby_replicas=settings.standby_replicas,
        key_serializer="raw",
        value_serializer="raw",
        # Members are told apart by this; two alike would be taken for one.
        canonical_url=f"http://{re.sub(r'[^A-Za-z0-9.-]', '-', name)}:6066",
        consumer_group_instance_id=settings.instance_id or None,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.session_timeout_s / 5,
        broker_rebalance_timeout=max(settings.session_timeout_s, 30.0),
        broker_request_timeout=request_timeout,
        broker_max_poll_interval=max(300.0, 2 * settings.broker_away_s),
        broker_max_poll_records=5000,
        broker_commit_interval=1.0,
        producer_max_request_size=settings.max_request_bytes,
        producer_max_batch_size=256 * 1024,
        producer_linger=0,
        producer_acks=-1,
        producer_request_timeout=15.0,
        stream_buffer_maxsize=4096,
        # The watch decides itself what must end before partitions change hands.
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        # Where a broker tells a wrong end, the check would refuse a healthy store.
        recovery_consistency_check=not settings.verify_end_offsets,
        # Its pages are open to everybody who reaches the machine.
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    app.settings = settings
    app.when_ready = []
    app.contact = Contact()
    app.fetch = Fetch(consumer_config(settings), EVENTS.name, settings.batch_max, settings.waiting_max, heard=app.contact.heard)
    app.ownership = Ownership(app.generation, settings.session_timeout_s)
    return app


def events_topic(app: MonitorApp) -> object:
    """The input, as raw bytes: decoding happens in the fold, where a failure is a dead letter and not a lost record."""
    raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    return app.topic(EVENTS.name, **raw, allow_empty=True)
