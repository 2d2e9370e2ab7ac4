"""What the worker shows of itself: the metrics page, and where the metrics look for what changes all the time."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leadline.errors import SettingsError
from leadline.processors.health import Page
from leadline.settings import Settings
from leadline.telemetry.observer import Sources

if TYPE_CHECKING:
    from leadline.processors.topology import Monitor
    from leadline.telemetry.setup import Telemetry

__all__ = ["LoopDelay", "show", "telemetry_of"]

_BEAT_S: Final = 0.5


def telemetry_of(settings: Settings, now: Callable[[], int]) -> Telemetry | None:
    """The telemetry that the settings ask for; none of it is imported where they ask for none."""
    if not settings.http_port and not settings.otlp_endpoint:
        return None
    try:
        from leadline.telemetry.setup import Options, Telemetry
    except ImportError as error:
        raise SettingsError(
            f"LEADLINE_HTTP_PORT and LEADLINE_OTLP_ENDPOINT need {error.name}, which is not installed: "
            "pip install 'leadline[monitor]' (in a clone: pip install '.[monitor]')"
        ) from None
    return Telemetry(
        Options(
            endpoint=settings.otlp_endpoint,
            protocol=settings.otlp_protocol,
            push=settings.otlp_metrics,
            ratio=settings.trace_ratio,
            fleets_max=settings.fleets_max,
            group=settings.app_id,
            # Without a name of its own a worker has one for this run: the series of two must not be taken for one's.
            instance=settings.instance_id or f"{socket.gethostname()}-{os.getpid()}",
        ),
        now,
    )


class LoopDelay:
    """How late the event loop comes to a timer: late means that something holds it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self.seconds = max(0.0, loop.time() - due)


def show(monitor: Monitor, telemetry: Telemetry, settings: Settings) -> None:
    """Before the worker starts: add the page, and tell the metrics where to look."""
    from leadline.telemetry.metrics import CONTENT_TYPE

    app, delay = monitor.app, LoopDelay()
    app.task(delay.watch)
    telemetry.sources(
        Sources(
            ready=app.flowing,
            lag_records=lambda: dict(monitor.progress.lag),
            sessions=monitor.sessions.number,
            state_bytes=lambda: _size(settings.data_dir),
            restore_left=app.restore_left,
            counts=lambda: monitor.counts,
            loop_delay=lambda: delay.seconds,
            policy_version=lambda: monitor.policies.policy.version,
        )
    )

    async def metrics() -> Page:
        return Page(200, CONTENT_TYPE, telemetry.metrics.render())

    monitor.pages.add("/metrics", metrics)


def _size(folder: Path) -> int:
    """Bytes of the files below ``folder``; one that goes away meanwhile counts nothing."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except FileNotFoundError:
                continue
    return total
