"""One worker process: start, watch over, stop. ``leadline monitor`` and ``python -m leadline.processors.worker`` run it."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import faust.worker

from leadline.commands.fold import fold as real_fold
from leadline.contracts.topics import EVENTS
from leadline.detection.policy import DEFAULT_POLICY, Policy
from leadline.errors import BrokerError, LeadlineError, Refused, SettingsError, TopicMismatch
from leadline.processors import topics
from leadline.processors.contact import watch_brokers
from leadline.processors.logs import setup, with_fields
from leadline.processors.owned import owned
from leadline.processors.policy_source import read_policy
from leadline.processors.telemetry import show, telemetry_of
from leadline.processors.topology import Monitor, wall_clock, wire
from leadline.processors.watch import Fold
from leadline.security import Secret
from leadline.settings import Settings, load_settings, unknown_variables
from leadline.telemetry.observer import UNOBSERVED, Observer

__all__ = ["BROKER_AWAY", "CRASHED", "NOT_DRAINED", "OK", "REFUSED", "main", "run"]

log = logging.getLogger(__name__)

OK = 0
CRASHED = 1
"""A handler failed: a bug, or a record that the broker refuses. Nothing was committed past it."""
REFUSED = 2
"""Settings or topics must be put right first."""
BROKER_AWAY = 3
NOT_DRAINED = 4
"""Told to stop, but what was in flight did not end in time; it comes again."""

_PROBE_S = 5.0
_LAST_SPANS_S = 2.0
"""How long the end waits for a collector to take the last spans."""
_GC_YOUNG, _GC_MIDDLE, _GC_OLD = 50_000, 20, 100
"""When Python looks for cycles: new objects, and how many times the younger are looked at before the older."""
_STUCK_S = 120.0
_TELL_S = 60
_TOLD = ("events", "violations", "commands", "dead_letters")


def run(settings: Settings, policy: Policy = DEFAULT_POLICY, fold: Fold = real_fold, now: Callable[[], int] = wall_clock) -> int:
    """Run a worker until it is told to stop or fails; returns the exit code. Blocks; call it in the main thread."""
    setup(settings.log_level, settings.log_json)
    stopped_early = _stop_before_ready()
    try:
        with owned(settings.data_dir):
            return _run(settings, policy, fold, now)
    except Refused as error:
        log.error("%s", error)
        return REFUSED
    except SystemExit:
        log.info("stopped before it was ready")
        return OK
    finally:
        stopped_early()


def _stop_before_ready() -> Callable[[], None]:
    """Until the engine handles signals itself, a stop is an orderly end too. Returns what puts the old handlers back."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


def _run(settings: Settings, policy: Policy, fold: Fold, now: Callable[[], int]) -> int:
    for told in unknown_variables():
        log.warning("%s", told)
    if settings.ready_file:
        ready = Path(settings.ready_file)
        if not ready.parent.is_dir():
            where = str(ready.parent)
            raise SettingsError(f"LEADLINE_READY_FILE is {str(ready)!r}: there is no directory {where!r}. Make it first.")
        ready.unlink(missing_ok=True)
    try:
        if settings.policy_file:
            policy = read_policy(settings.policy_file)
        partitions = topics.ensure(settings)
    except BrokerError as error:
        log.error("%s", error)
        return BROKER_AWAY
    except OSError as error:
        log.error("LEADLINE_POLICY_FILE %s cannot be read: %s", settings.policy_file, error.strerror)
        return REFUSED
    telemetry = telemetry_of(settings, now)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    monitor = loop.run_until_complete(_wire(settings, policy, fold, now, partitions, telemetry or UNOBSERVED))
    if telemetry is not None:
        show(monitor, telemetry, settings)
    if settings.http_port:
        port = loop.run_until_complete(monitor.pages.start(settings.http_host, settings.http_port))
        log.info("pages are served", extra=with_fields(at=f"http://{settings.http_host}:{port}/"))
    worker = _Worker(monitor, settings, loop, topics.identity(settings))
    _collect_seldom()
    try:
        worker.execute_from_commandline()
    except SystemExit:
        pass
    except Exception:
        log.exception("the worker failed while it stopped")
        return CRASHED
    finally:
        worker.disarm()
        if telemetry is not None:
            telemetry.close(_LAST_SPANS_S)
    return _verdict(worker.crash_reason or monitor.app.crash_reason)


def _collect_seldom() -> None:
    """What is made for an event is let go by counting references; the few cycles that the engine makes can wait. Else
    the collector goes through all the cached states again and again: a fifth of the work, with many sessions."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_YOUNG, _GC_MIDDLE, _GC_OLD)


async def _wire(
    settings: Settings, policy: Policy, fold: Fold, now: Callable[[], int], partitions: int, observer: Observer
) -> Monitor:
    return wire(settings, policy, fold, now, partitions, observer)


def _verdict(reason: BaseException | None) -> int:
    """The exit code, and one clear sentence in the log."""
    if reason is None:
        log.info("stopped")
        return OK
    if isinstance(reason, LeadlineError):
        log.error("%s", reason)
    else:
        log.error(
            "the worker failed with %s: %s. Nothing was committed past the records it was working on.",
            type(reason).__name__,
            reason,
            exc_info=reason,
        )
    return _code(reason)


def _code(reason: BaseException | None) -> int:
    return BROKER_AWAY if isinstance(reason, BrokerError) else REFUSED if isinstance(reason, Refused) else CRASHED


class _Worker(faust.worker.Worker):  # type: ignore[misc]
    """Faust's worker with an end that comes for certain, a watch over the broker, and no debugger on a signal."""

    def __init__(
        self, monitor: Monitor, settings: Settings, loop: asyncio.AbstractEventLoop, identity: str | None = None
    ) -> None:
        super().__init__(
            monitor.app,
            loop=loop,
            loglevel=settings.log_level,
            override_logging=False,
            redirect_stdouts=False,
            quiet=True,
            workdir=Path.cwd(),
            blocking_timeout=0.0,
        )
        self.spinner = None
        self._monitor = monitor
        self._settings = settings
        self._timer: threading.Timer | None = None
        self._identity = identity
        self._looking: asyncio.Future[Any] | None = None
        monitor.app.when_ready.append(self._on_ready)

    def _on_sigusr2(self) -> None:
        """Faust opens a debugger here; a server must not."""

    async def _sentinel_task(self) -> None:
        """Faust waits a second here for nothing."""

    def _schedule_shutdown(self, signal: Any) -> None:
        log.info("stopping", extra=with_fields(signal=getattr(signal, "name", signal)))
        self.arm(NOT_DRAINED)
        super()._schedule_shutdown(signal)

    def _crash(self, reason: BaseException) -> None:
        # What fails because a stop is under way must not hide why it is.
        super()._crash(self.crash_reason or reason)

    def arm(self, code: int) -> None:
        """From now on the process ends within the drain limit, by force if need be, whatever hangs."""
        if self._timer is None:
            self._timer = threading.Timer(self._settings.drain_s, _force, (code, self._settings.drain_s))
            self._timer.daemon = True
            self._timer.start()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def on_first_start(self) -> None:
        await super().on_first_start()
        self.add_future(self._probe())
        self.add_future(self._fuse())
        self.add_future(self._watch_restore())
        self.add_future(self._watch_progress())
        self.add_future(self._watch_events())
        self.add_future(self._tell())

    async def _tell(self) -> None:
        """Now and then a line of what was done since the last one, while anything is done."""
        counts, told = self._monitor.counts, Counter[str]()
        while True:
            await asyncio.sleep(_TELL_S)
            done = {name: counts[name] - told[name] for name in _TOLD}
            if any(done.values()):
                log.info("observed", extra=with_fields(**done, for_s=_TELL_S))
            told = Counter(counts)

    async def _fuse(self) -> None:
        """When anything crashed, the stop that follows has a deadline too."""
        app = self._monitor.app
        await asyncio.wait(
            [asyncio.ensure_future(each) for each in (self._crashed.wait(), app._crashed.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        self.arm(_code(self.crash_reason or app.crash_reason))

    async def _probe(self) -> None:
        """A broker that is away while nothing is being sent goes unnoticed otherwise."""
        app, settings = self._monitor.app, self._settings
        await watch_brokers(app.contact, app.ask, settings.bootstrap, settings.broker_away_s)

    async def _watch_restore(self) -> None:
        """The engine swallows errors of a restore and then waits for ever."""
        app, limit = self._monitor.app, max(_STUCK_S, 2 * self._settings.broker_away_s)
        seen, since = app.progress(), self.loop.time()
        while True:
            await asyncio.sleep(_PROBE_S)
            now = app.progress()
            if app.flowing() or app.waits_for or now != seen:
                seen, since = now, self.loop.time()
            elif self.loop.time() - since > limit:
                raise LeadlineError(
                    f"partitions were neither assigned nor restored for {limit:g} s. If the brokers are well, "
                    f"remove {self._settings.data_dir} (it is restored from the changelog) and start the worker again."
                )

    async def _watch_progress(self) -> None:
        """A fetch that has come to a standstill without an error looks like a quiet topic."""
        app, progress, limit = self._monitor.app, self._monitor.progress, self._settings.stall_s
        while True:
            await asyncio.sleep(min(_PROBE_S, limit / 4))
            if not app.flowing():
                progress.paused(time.monotonic())
                continue
            try:
                async with asyncio.timeout(_PROBE_S):
                    ends = await app.ends(EVENTS.name, app.active_partitions(EVENTS.name))
            except Exception:
                # No broker answers: how long that may last is for _probe to say.
                progress.paused(time.monotonic())
                continue
            progress.saw(ends, app.committed(EVENTS.name), time.monotonic())
            if progress.stalled_s(time.monotonic()) >= limit:
                waiting = sum(progress.lag.values())
                raise LeadlineError(
                    f"{waiting} records of {EVENTS.name} wait and none was committed for {limit:g} s; what was not committed "
                    "comes again. Start the worker again; if this repeats, look at its log, its disk and the brokers."
                )

    async def _watch_events(self) -> None:
        """A topic that is made anew while it is read looks like a quiet one, and its records like repeated ones."""
        missed = 0
        while True:
            await asyncio.sleep(2 * _PROBE_S)
            try:
                await asyncio.to_thread(topics.require_events, self._settings, self._identity)
                missed = 0
            except BrokerError:
                missed = 0  # How long that may last is for _probe to say.
            except TopicMismatch:
                missed += 1
                # A broker that has just started may not know its topics yet.
                if missed > 1:
                    raise

    async def _look_for_work(self) -> None:
        """No partition fell to this worker: others have them all, or the topic is gone and nobody would say so."""
        app = self._monitor.app
        while not app.active_partitions(EVENTS.name):
            try:
                await asyncio.to_thread(topics.require_same, self._settings, self._identity)
            except BrokerError as error:
                log.info("the topics could not be looked at: %s", error)
            await asyncio.sleep(2 * _PROBE_S)

    def _on_ready(self) -> None:
        partitions = sorted(self._monitor.app.active_partitions(EVENTS.name))
        log.info("ready", extra=with_fields(partitions=",".join(map(str, partitions)), pid=os.getpid()))
        if self._looking is None or self._looking.done():
            self._looking = self.add_future(self._look_for_work())
        if self._settings.ready_file:
            path = Path(self._settings.ready_file)
            part = path.with_name(path.name + ".part")
            part.write_text(json.dumps({"pid": os.getpid(), "partitions": partitions}))
            part.replace(path)


def _force(code: int, limit_s: float) -> None:
    log.error("stopping took longer than the limit; what was in flight comes again", extra=with_fields(limit_s=limit_s))
    logging.shutdown()
    os._exit(code)


def main(argv: Sequence[str] | None = None, fold: Fold = real_fold) -> int:
    """``python -m leadline.processors.worker``: settings from the environment, each also as an option."""
    parser = argparse.ArgumentParser(prog="python -m leadline.processors.worker", description="Run one monitor worker.")
    for field in fields(Settings):
        if isinstance(field.default, Secret):
            continue  # What is on a command line, every user of the machine can read.
        option = "--" + field.name.replace("_", "-")
        if isinstance(field.default, bool):
            parser.add_argument(option, action="store_const", const=True)
        else:
            parser.add_argument(option)
    options = vars(parser.parse_args(argv))
    try:
        settings = load_settings(**options)
    except Refused as error:
        setup("INFO", False)
        log.error("%s", error)
        return REFUSED
    return run(settings, fold=fold)


if __name__ == "__main__":
    sys.exit(main())
