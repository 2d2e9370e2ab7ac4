"""What a worker tells its telemetry, a few calls a batch; without telemetry each is empty.

::

    fold ──> judged(batch) ──> outputs confirmed ──> delivered(batch) ──> state stored, offsets committed
               │ gives the outputs their trace context
               ▼ a batch that is given up in between is simply not told of again

Calls come from the worker's event loop. None of them may raise, block or wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from leadline.commands.fold import Folded
from leadline.contracts.session_state import Incident

__all__ = ["UNOBSERVED", "Batch", "Observer", "Sources", "Unobserved"]


@dataclass(slots=True)
class Batch:
    """One partition's batch on its way. ``first``, ``last``: offsets; ``began``: ``perf_counter_ns`` before the fold."""

    partition: int
    first: int
    last: int
    count: int
    folded: Folded
    began: int = field(default_factory=perf_counter_ns)
    stamp: int = 0
    """The broker's time of the last record, ms since 1970; not positive: it gave none."""
    judged: int = 0
    """``perf_counter_ns`` after the fold; set by who needs it."""
    kept: Any = None
    """The observer's own, from ``judged`` to ``delivered``."""


class Sources(NamedTuple):
    """What is asked for only when somebody looks, from any thread: each returns at once."""

    ready: Callable[[], bool] = lambda: False
    """Whether partitions are assigned and restored."""
    lag_records: Callable[[], Mapping[int, int]] = dict
    """Records of ``leadline.events`` behind the end, by partition that is this worker's."""
    sessions: Callable[[], int] = lambda: 0
    """Sessions that this worker keeps."""
    state_bytes: Callable[[], int] = lambda: 0
    """Bytes of the local copy of the sessions."""
    restore_left: Callable[[], int] = lambda: 0
    """Changelog records still to be restored."""
    counts: Callable[[], Mapping[str, int]] = dict
    """What the worker counts itself: ``dead_letters_lost``, ``delivery_retries``, ``policy_rejected``."""
    loop_delay: Callable[[], float] = lambda: 0.0
    """Seconds that the event loop came late to a timer."""
    policy_version: Callable[[], str] = lambda: ""


class Observer(Protocol):
    """What a worker calls."""

    def judged(self, batch: Batch) -> None:
        """The fold is done, nothing was sent. May put records with another trace context into ``batch.folded.outputs``."""

    def delivered(self, batch: Batch) -> None:
        """Every output of the batch is confirmed, its dead letters as well as can be."""

    def restored(self, partition: int, incidents: Iterable[tuple[str, tuple[Incident, ...]]], fleets: Iterable[str] = ()) -> None:
        """A partition was taken over; the open incidents of its sessions, by state key, and the fleets that these are of."""

    def revoked(self, partitions: Iterable[int]) -> None:
        """Partitions are this worker's no more."""

    def rebalanced(self) -> None:
        """A rebalance has ended."""

    def sources(self, sources: Sources) -> None:
        """Where to ask for what changes all the time."""


class Unobserved:
    """No telemetry: costs a call."""

    __slots__ = ()

    def judged(self, batch: Batch) -> None: ...

    def delivered(self, batch: Batch) -> None: ...

    def restored(
        self, partition: int, incidents: Iterable[tuple[str, tuple[Incident, ...]]], fleets: Iterable[str] = ()
    ) -> None: ...

    def revoked(self, partitions: Iterable[int]) -> None: ...

    def rebalanced(self) -> None: ...

    def sources(self, sources: Sources) -> None: ...


UNOBSERVED = Unobserved()
