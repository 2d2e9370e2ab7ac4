"""All wiring of the monitor on one screen.

::

    leadline.events ──> watch ──> leadline.violations, leadline.commands, leadline.dead-letters
    leadline.silences ──> silences ──> (the policy that watch judges by)
    time ──> heartbeat ──> leadline.commands
         ^                └─────> leadline.sessions ──> restore (after a rebalance)
         └── clock <── deadlines of the sessions
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mode import CrashingSupervisor

from leadline.commands.fold import fold as real_fold
from leadline.contracts.topics import EVENTS, SESSIONS
from leadline.detection.policy import DEFAULT_POLICY, Policy
from leadline.errors import BrokerError, LeadlineError
from leadline.processors import faultpoints
from leadline.processors.app import events_topic, make_app
from leadline.processors.clock import Clock, run_clock
from leadline.processors.engine import MonitorApp
from leadline.processors.guard import read_changelog, run_guard
from leadline.processors.health import Page, Pages, json_page
from leadline.processors.heartbeat import run_heartbeat
from leadline.processors.outputs import Delivery
from leadline.processors.policy_source import PolicySource
from leadline.processors.progress import Progress
from leadline.processors.send import Sender, producer_config
from leadline.processors.sessions import Sessions
from leadline.processors.signed import checked, signing
from leadline.processors.silences import SilenceSource
from leadline.processors.table import STORE_OPTIONS, SessionsTable
from leadline.processors.topics import require_events, require_seen
from leadline.processors.watch import Fold, Watch
from leadline.settings import Settings
from leadline.telemetry.observer import UNOBSERVED, Observer

__all__ = ["Monitor", "make_table", "wire"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Monitor:
    """One worker's parts, wired and not started."""

    app: MonitorApp
    watch: Watch
    clock: Clock
    sessions: Sessions
    delivery: Delivery
    counts: Counter[str]
    progress: Progress
    policies: PolicySource
    pages: Pages
    """What is shown over HTTP; add a page before the worker starts."""


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def wire(
    settings: Settings,
    policy: Policy = DEFAULT_POLICY,
    fold: Fold = real_fold,
    now: Callable[[], int] = wall_clock,
    partitions: int | None = None,
    observer: Observer = UNOBSERVED,
) -> Monitor:
    """Build a worker from its settings. Call it inside the event loop that will run it.

    ``policy`` is in force until the file that the settings name, if any, holds another. ``observer`` is told what happens.
    """
    counts: Counter[str] = Counter()
    app = make_app(settings, partitions)
    events = events_topic(app)
    sender = Sender(producer_config(settings), app.contact.heard)
    delivery = Delivery(signing(sender.send_all, settings), app.reachable, settings.broker_away_s, settings.dead_letter_s, counts)
    table = make_table(app)
    fault = faultpoints.armed(settings.test_fault)
    sessions = Sessions(table, settings.cache_sessions)
    clock = Clock(table, sessions)
    policies = PolicySource(policy, settings.policy_file, counts)
    silences = SilenceSource(settings, now, counts)
    watch = Watch(
        app, sessions, delivery, clock, silences.around(checked(fold, settings)), policies, now, settings, counts, fault, observer
    )

    app.agent(events, name="watch", concurrency=1, supervisor_strategy=CrashingSupervisor)(_agent(watch))

    async def tick() -> None:
        await run_clock(clock, delivery.confirm, app.flowing, now, counts, fault=fault)

    async def heartbeat() -> None:
        await run_heartbeat(
            lambda: {partition: watch.through.get(partition, -1) for partition in app.active_partitions(EVENTS.name)},
            delivery.confirm,
            app.flowing,
            now,
            settings.heartbeat_s,
        )

    async def revoked(_app: Any, revoked: Any, **_: Any) -> None:
        partitions = {tp.partition for tp in revoked if tp.topic == EVENTS.name}
        await watch.quiesce(partitions, settings.session_timeout_s / 2)

    restores = 0

    async def restored() -> None:
        nonlocal restores
        restores += 1
        mine = restores, app.generation()
        # The engine swallows what is raised here, and a worker without deadlines would look healthy.
        try:
            partitions = app.active_partitions(SESSIONS.name)
            watch.restart(partitions)
            found = {}
            for partition in partitions:
                found[partition] = await sessions.survey(partition)
                # The engine does not end this when the group moves on: the partitions may be another's by now.
                if mine != (restores, app.generation()):
                    return
            seen = {partition: survey.watermark for partition, survey in found.items() if survey.watermark >= 0}
            if seen:
                require_seen(seen, await app.ends(EVENTS.name, seen))
                if mine != (restores, app.generation()):
                    return
            for partition, survey in found.items():
                observer.restored(partition, survey.incidents, survey.fleets)
                sessions.again(partition, list(table.regressed.get(partition, ())))
            await silences.read_first(app.wait_for, lambda: bool(app.should_stop))
            if fault:
                fault("after-restore")
        except Exception as error:
            if not isinstance(error, LeadlineError):
                log.exception("what was restored could not be looked through")
            await app.crash(await asyncio.to_thread(_nearer, settings, error) if isinstance(error, BrokerError) else error)

    async def before_stop() -> None:
        await watch.drain(settings.drain_s / 2)
        await app.fetch.stop()
        await sender.close(1.0)

    async def guard() -> None:
        await run_guard(
            table,
            lambda: app.ends(SESSIONS.name, app.active_partitions(SESSIONS.name)),
            lambda: app.flowing() and not watch.flushing,
            app.generation,
            watch.write_again,
            partial(read_changelog, settings),
            settings.session_timeout_s / 3,
        )

    async def follow_policy() -> None:
        await policies.watch()

    async def follow_silences() -> None:
        await silences.watch()

    app.task(tick)
    app.task(guard)
    app.task(follow_silences)
    app.task(heartbeat)
    app.task(follow_policy)
    app.on_partitions_revoked.connect(revoked, weak=False)
    table.on_recover(restored)
    app.before_stop = before_stop
    app.when_ready.append(observer.rebalanced)
    app.when_ready.append(watch.resume)
    progress = Progress(time.monotonic())
    pages = _pages(app, progress, counts, settings.stall_s)
    return Monitor(app, watch, clock, sessions, delivery, counts, progress, policies, pages)


def _pages(app: MonitorApp, progress: Progress, counts: Counter[str], stall_s: float) -> Pages:
    async def ready() -> Page:
        why = app.not_ready()
        return json_page(503 if why else 200, ready=not why, why=why, partitions=sorted(app.active_partitions(EVENTS.name)))

    async def live() -> Page:
        stalled = progress.stalled_s(time.monotonic())
        return json_page(200 if stalled < stall_s else 503, live=stalled < stall_s, stalled_s=round(stalled, 1))

    async def status() -> Page:
        return json_page(
            200,
            ready=app.flowing(),
            partitions=sorted(app.active_partitions(EVENTS.name)),
            lag={str(partition): lag for partition, lag in sorted(progress.lag.items())},
            stalled_s=round(progress.stalled_s(time.monotonic()), 1),
            counts=dict(counts),
        )

    pages = Pages()
    pages.add("/ready", ready)
    pages.add("/live", live)
    pages.add("/", status)
    return pages


def _nearer(settings: Settings, error: Exception) -> Exception:
    """``error``, or that the events topic is gone, where that is why nobody answered. Blocks."""
    try:
        require_events(settings, None)
    except LeadlineError as nearer:
        return nearer
    return error


def _agent(watch: Watch) -> Any:
    async def consume(stream: Any) -> None:
        await watch.consume(stream)

    return consume


def make_table(app: MonitorApp) -> SessionsTable:
    """The sessions table and its changelog topic."""
    changelog = app.topic(
        SESSIONS.name,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        acks=False,
        internal=True,
        compacting=True,
        allow_empty=True,
        maxsize=131_072,
    )
    table = SessionsTable(
        app,
        name="sessions",
        key_type=bytes,
        value_type=bytes,
        changelog_topic=changelog,
        options=dict(STORE_OPTIONS),
        recovery_buffer_size=1000,
    )
    added: SessionsTable = app.tables.add(table)
    return added
