"""The demo from start to end: broker, topics, one monitor worker, the fleet, the verdict. Everything it starts it stops."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from leadline.broker import EmbeddedBroker
from leadline.contracts.text import plural
from leadline.demo.children import Child
from leadline.demo.fleet import AgentPlan, AgentResult, FleetPlan
from leadline.demo.guest import WAITS_S, admit
from leadline.demo.kinds import KINDS
from leadline.demo.observer import Observed, Observer, Viewer
from leadline.demo.report import Report, judge
from leadline.errors import BrokerError
from leadline.processors import topics
from leadline.settings import Settings, load_settings

__all__ = ["LEAST_AGENTS", "Options", "plans", "run"]

LEAST_AGENTS: Final = 24
_PROCESSES: Final = 2
_ROUNDS: Final = 100
_PACE_S: Final = 0.2
_MOST_ROUNDS_A_SECOND: Final = 150
"""Of the whole fleet: a demo shares one small machine with its broker and its monitor."""
_READY_S: Final = 60.0
_CLOSING_S: Final = 30.0
"""How long the fleet may take after its time is over: orders underway are still obeyed and released."""
_READY: Final = "ready.json"
_PLAN: Final = "plan.json"
_RESULT: Final = "result.json"
_ENDED_S: Final = 15.0
"""How long the monitor may take to have seen every session's end."""


@dataclass(frozen=True, slots=True)
class Options:
    """``duration``: seconds of compacting; left out, enough for some hundred rounds of each agent. Without ``bootstrap`` an
    embedded broker is started; with it, missing topics are created only where ``create_topics`` says so. ``dashboard``:
    serve the web page meanwhile."""

    agents: int = LEAST_AGENTS
    seed: int = 1
    duration: float | None = None
    bootstrap: str | None = None
    create_topics: bool = False
    dashboard: bool = False

    @property
    def pace(self) -> tuple[float, float]:
        """Least and most seconds between two rounds of an agent: the larger the fleet, the slower each of it."""
        mean = max(_PACE_S, self.agents / _MOST_ROUNDS_A_SECOND)
        return 0.5 * mean, 1.5 * mean

    @property
    def seconds(self) -> float:
        return _ROUNDS * sum(self.pace) / 2 if self.duration is None else self.duration


def plans(options: Options) -> list[AgentPlan]:
    """Who takes part: the kinds in turn, the healthy ones twice as often. The same options make the same fleet, ids aside."""
    healthy = [kind for kind in KINDS if not kind.planted]
    turn = [*KINDS, *healthy]
    run_id = uuid.uuid4().hex[:6]
    return [
        AgentPlan(
            f"demo-{run_id}-{number:03d}", f"agent-{number:03d}", turn[number % len(turn)].name, options.seed * 1_000 + number
        )
        for number in range(options.agents)
    ]


def run(
    options: Options,
    agents: list[AgentPlan],
    viewer: Viewer,
    opened: Callable[[str], object] = str,
    go_on: Callable[[], object] = bool,
) -> Report:
    """Run the demo to its end and judge it. Blocks for ``seconds`` and some ten more. ``opened`` is told the dashboard's address;
    ``go_on`` is asked while the fleet runs, and raises where it should not.

    Raises :class:`leadline.errors.LeadlineError` with one sentence when a part cannot be started or dies. Whatever happens,
    ``KeyboardInterrupt`` too, nothing that was started is left running.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        settings, broker = _broker(options, stack, viewer)
        viewer.note(f"{broker} at {settings.bootstrap}")
        topics.create(settings, timeout_s=10.0)
        partitions = topics.require(topics.check(settings))
        worker = _worker(settings)
        stack.callback(worker.wait)
        observer = Observer(settings, partitions, frozenset(one.session_id for one in agents), viewer)
        stack.callback(observer.close)
        if options.dashboard:
            page = _dashboard(settings)
            stack.callback(page.wait)
            opened(_address(page))
        _await_ready(worker)
        viewer.note(f"monitor ready after {time.monotonic() - began:.1f} s; {len(agents)} agents start")
        fleets: list[Child] = []
        # Undone first: all are told to stop before the first is waited for.
        stack.callback(lambda: _stop(fleets, worker))
        fleets.extend(_fleet(options, settings.bootstrap, agents[number::_PROCESSES]) for number in range(_PROCESSES))
        results = _watch(options, worker, fleets, observer, viewer, go_on)
        if not observer.wait_until(lambda seen: _all_ended(seen, agents), _ENDED_S):
            viewer.note("the monitor has not seen the end of every session")
        report = judge(agents, results, observer.observed, seconds=time.monotonic() - began, broker=broker)
        viewer.note("stopping")
    return report


def _broker(options: Options, stack: ExitStack, viewer: Viewer) -> tuple[Settings, str]:
    """The settings to reach it by, and a word for it."""
    if options.bootstrap is not None:
        settings = load_settings(bootstrap=options.bootstrap)
        viewer.note(f"asking the cluster at {settings.bootstrap}, for {WAITS_S:g} s at most")
        admit(settings, create_topics=options.create_topics)
        return settings, "cluster"
    embedded = stack.enter_context(EmbeddedBroker())
    return load_settings(bootstrap=embedded.address), embedded.capabilities.name


def _worker(settings: Settings) -> Child:
    """One worker of the monitor, as ``leadline monitor`` runs it."""
    folder = Path(tempfile.mkdtemp(prefix="leadline-demo-"))
    given = {
        "LEADLINE_BOOTSTRAP": settings.bootstrap,
        "LEADLINE_DATA_DIR": str(folder / "data"),
        "LEADLINE_READY_FILE": str(folder / _READY),
        "LEADLINE_INSTANCE_ID": "",
        "LEADLINE_DRAIN_S": "5",
    }
    return Child("leadline.processors.worker", (), folder, grace=6.0, environ=given)


def _dashboard(settings: Settings) -> Child:
    """The web page, on a free port of loopback."""
    folder = Path(tempfile.mkdtemp(prefix="leadline-demo-"))
    given = {"LEADLINE_BOOTSTRAP": settings.bootstrap, "LEADLINE_DASHBOARD_HOST": "127.0.0.1"}
    return Child("leadline.dashboard.serve", ("0",), folder, grace=4.0, environ=given)


def _address(page: Child) -> str:
    deadline = time.monotonic() + _READY_S
    while True:
        told = page.tail()
        if found := next((line for line in told.split(" | ") if line.startswith("http://")), None):
            return found
        if page.exit_code is not None or time.monotonic() > deadline:
            raise BrokerError(f"the dashboard did not start: {told}; `--no-dashboard` does without")
        time.sleep(0.05)


def _await_ready(worker: Child) -> None:
    deadline = time.monotonic() + _READY_S
    while not (worker.folder / _READY).exists():
        if worker.exit_code is not None:
            raise BrokerError(f"the monitor worker ended at its start with code {worker.exit_code}: {worker.tail()}")
        if time.monotonic() > deadline:
            raise BrokerError(f"the monitor worker was not ready within {_READY_S:g} s: {worker.tail()}")
        time.sleep(0.05)


def _fleet(options: Options, bootstrap: str, agents: list[AgentPlan]) -> Child:
    """One process of the fleet."""
    folder = Path(tempfile.mkdtemp(prefix="leadline-demo-"))
    plan = FleetPlan(bootstrap, "demo", options.seconds, options.pace, agents)
    (folder / _PLAN).write_bytes(msgspec.json.encode(plan))
    return Child("leadline.demo.fleet", (str(folder / _PLAN), str(folder / _RESULT)), folder, grace=4.0)


def _stop(fleets: list[Child], worker: Child) -> None:
    for child in (*fleets, worker):
        child.stop()
    for child in fleets:
        child.wait()


def _watch(
    options: Options, worker: Child, fleets: list[Child], observer: Observer, viewer: Viewer, go_on: Callable[[], object]
) -> list[AgentResult]:
    """Wait for the fleet's end and collect what the agents say of themselves."""
    began = time.monotonic()
    deadline = began + options.seconds + _CLOSING_S
    noted = 0
    while any(child.exit_code is None for child in fleets):
        go_on()
        if worker.exit_code is not None:
            raise BrokerError(f"the monitor worker ended early with code {worker.exit_code}: {worker.tail()}")
        if observer.error is not None:
            raise BrokerError(f"the topics cannot be read any more: {observer.error}") from observer.error
        if time.monotonic() > deadline:
            raise BrokerError(f"the fleet did not end within {options.seconds + _CLOSING_S:g} s: {fleets[0].tail()}")
        passed = int(time.monotonic() - began)
        if passed >= noted + 5:
            noted = passed
            seen = observer.observed
            told = f"{plural(seen.rounds, 'round')}, {plural(len(seen.violations), 'violation')}, "
            told += plural(len(seen.commands), "command")
            viewer.note(f"{passed} s: {told}")
        time.sleep(0.05)
    results: list[AgentResult] = []
    for child in fleets:
        file = child.folder / _RESULT
        if child.exit_code or not file.exists():
            raise BrokerError(f"a process of the fleet ended with code {child.exit_code}: {child.tail()}")
        results += msgspec.json.decode(file.read_bytes(), type=list[AgentResult])
    return results


def _all_ended(seen: Observed, agents: list[AgentPlan]) -> bool:
    """Once a session's end is in the monitor's state, all that it had to say of it is on the topics."""
    states = [seen.states.get(one.session_id) for one in agents]
    return all(state is not None and state.ended_at is not None for state in states)
