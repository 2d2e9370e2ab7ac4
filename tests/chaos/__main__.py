"""The chaos suite: faults under load on Apache Kafka, and afterwards what stands on the topics against the oracle.

::

    make chaos                    at least 200 kills over every fault point and 50 rebalances; about half an hour
    make chaos ARGS=--short       each fault once or twice; a few minutes
    python -m tests.chaos --only zombies --seed 7 --json

The same seed makes the same records; at which instruction a kill strikes is chance. Exits with 1 when anything was lost
or doubled, a state differs, or (in the long run) a fault was injected too seldom.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from leadline.processors.faultpoints import POINTS
from tests.chaos.arena import Arena, Tally
from tests.chaos.faults import SCENARIOS
from tests.chaos.nursery import Nursery
from tests.chaos.scenario import Scenario, Times, Unavailable
from tests.support import brokers
from tests.support.oracle import explain
from tests.support.wiped import wipe

SHORT: Final = Times(point=1, random=2, membership=2, each=1, away_s=10)
FULL: Final = Times(point=14, random=70, membership=26, each=4, away_s=60)
LEAST_KILLS: Final = 200
LEAST_REBALANCES: Final = 50


class Chaos:
    """One run. ``console``: where people look; progress never goes to standard output."""

    def __init__(self, seed: int, rate: float, times: Times, folder: Path, console: Console) -> None:
        self.seed = seed
        self.rate = rate
        self.times = times
        self.folder = folder
        self.console = console
        self.done: list[Tally] = []
        self.skipped: dict[str, str] = {}
        self._told: dict[str, float] = {}
        self._nursery = Nursery()

    def run(self, scenarios: Sequence[Scenario], lanes: int) -> None:
        """All scenarios, ``lanes`` at a time, each lane on clusters of its own: most of the time is spent waiting."""
        left: Queue[Scenario] = Queue()
        for scenario in scenarios:
            left.put(scenario)
        with ThreadPoolExecutor(lanes) as pool:
            for lane in [pool.submit(self._lane, number, left) for number in range(min(lanes, len(scenarios)))]:
                lane.result()
        self.done.sort(key=lambda tally: [one.name for one in SCENARIOS].index(tally.name))

    def _lane(self, number: int, left: Queue[Scenario]) -> None:
        clusters = 0
        scenario = _next(left)
        while scenario is not None:
            nodes = scenario.nodes
            clusters += 1
            cluster = brokers.ApacheKafka(self.folder / f"kafka-{number}-{clusters}", nodes=nodes)
            try:
                cluster.start()
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                # What could not be tried is no success, and the others are still to be tried.
                failed = Tally(scenario.name, notes=[f"its cluster did not start: {str(error)[-300:]}"])
                failed.difference.lost.append("the scenario did not begin")
                self.done.append(failed)
                scenario = _next(left)
                continue
            # One cluster for all that need as many nodes; one that a scenario broke for good is replaced.
            try:
                sound = True
                while sound and scenario is not None and scenario.nodes == nodes:
                    sound = self._one(scenario, cluster)
                    scenario = _next(left)
            finally:
                cluster.kill()

    def _one(self, scenario: Scenario, kafka: brokers.ApacheKafka) -> bool:
        """Run a scenario; whether its cluster is still of use."""
        started = time.monotonic()
        wipe(kafka.bootstrap)
        number = SCENARIOS.index(scenario)
        folder = self.folder / f"scenario-{number}"
        arena = Arena(
            self._nursery,
            kafka.bootstrap,
            folder,
            self.seed + number,
            self.rate,
            lambda what: self._say(scenario.name, what, started),
            replication=min(3, scenario.nodes),
        )
        arena.tally.name = scenario.name
        try:
            arena.say("begins")
            scenario.run(arena, self.times, kafka)
            arena.say("comparing with the oracle")
            arena.tally.difference = arena.settle()
            if arena.tally.difference:
                # Next to the workers' logs; both are there afterwards with --keep.
                (folder / "difference.txt").write_text(explain(arena.oracle, arena.found, arena.tally.difference, 50))
                arena.tally.notes.append(explain(arena.oracle, arena.found, arena.tally.difference, 1))
            arena.stop_all()
        except Unavailable as error:
            self.skipped[scenario.name] = str(error)
            self.console.print(f"{scenario.name}: skipped: {error}", highlight=False)
        except Exception as error:
            arena.tally.notes.append(f"the scenario failed: {type(error).__name__}: {str(error)[-600:]}")
            arena.tally.difference.lost.append("the scenario did not end")
        finally:
            arena.close()
        if scenario.name not in self.skipped:
            self._keep(arena, time.monotonic() - started)
        try:
            kafka.revive()
        except RuntimeError as error:
            self.console.print(f"  a new cluster is made: {str(error)[-200:]}", style="dim", highlight=False)
            return False
        return True

    def _keep(self, arena: Arena, seconds: float) -> None:
        tally = arena.tally
        tally.events = arena.oracle.events
        tally.outputs = len(arena.oracle.violations) + len(arena.oracle.commands)
        tally.repeats = arena.found.repeats
        tally.seconds = seconds
        self.done.append(tally)
        self.console.print(f"{tally.name}: {_told(tally)}", highlight=False)

    def _say(self, name: str, what: str, started: float) -> None:
        # On a terminal each step; in a log one line in ten seconds.
        if self.console.is_terminal or time.monotonic() - self._told.get(name, 0.0) > 10:
            self._told[name] = time.monotonic()
            self.console.print(f"  {time.monotonic() - started:5.0f} s  {name}: {what}", style="dim", highlight=False)

    def close(self) -> None:
        self._nursery.close()

    def faults(self) -> Counter[str]:
        return sum((tally.faults for tally in self.done), Counter())

    def kills(self) -> int:
        return sum(tally.kills for tally in self.done)

    def rebalances(self) -> int:
        return sum(tally.rebalances for tally in self.done)

    def wrong(self) -> list[Tally]:
        return [tally for tally in self.done if tally.difference]

    def report(self) -> dict[str, Any]:
        def count(name: str) -> int:
            return sum(len(getattr(tally.difference, name)) for tally in self.done)

        return {
            "seed": self.seed,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "kills": self.kills(),
            "rebalances": self.rebalances(),
            "faults": dict(sorted(self.faults().items())),
            "lost": count("lost"),
            "doubled": count("doubled"),
            "states": count("states"),
            "dead_letters": count("letters"),
            "skipped": self.skipped,
            "scenarios": [
                {
                    "name": tally.name,
                    "faults": dict(tally.faults),
                    "kills": tally.kills,
                    "rebalances": tally.rebalances,
                    "events": tally.events,
                    "outputs": tally.outputs,
                    "repeats": tally.repeats,
                    "exits": {str(code): number for code, number in tally.exits.items()},
                    "seconds": round(tally.seconds, 1),
                    "difference": str(tally.difference),
                    "notes": tally.notes,
                }
                for tally in self.done
            ],
        }


def _next(left: Queue[Scenario]) -> Scenario | None:
    try:
        return left.get_nowait()
    except Empty:
        return None


def _told(tally: Tally) -> str:
    faults = ", ".join(f"{number} x {name}" for name, number in tally.faults.items())
    exits = "".join(f"; exit {code}: {number}" for code, number in tally.exits.items())
    notes = "".join(f"\n    {note}" for note in tally.notes)
    return f"{faults or 'no fault'}; {tally.events} events; difference: {tally.difference}{exits} ({tally.seconds:.0f} s){notes}"


def _table(chaos: Chaos) -> Table:
    table = Table(title=f"Chaos, seed {chaos.seed}: {chaos.kills()} kills, {chaos.rebalances()} rebalances", title_justify="left")
    for column in ("scenario", "fault", "count", "events", "ids", "sent again", "lost", "doubled", "states", "letters"):
        table.add_column(column, justify="left" if column in ("scenario", "fault") else "right")
    for tally in chaos.done:
        difference = tally.difference
        wrong = [str(len(items)) for items in (difference.lost, difference.doubled, difference.states, difference.letters)]
        for number, (fault, count) in enumerate(sorted(tally.faults.items()) or [("none", 0)]):
            own = [str(tally.events), str(tally.outputs), str(tally.repeats), *wrong] if number == 0 else [""] * 7
            table.add_row(tally.name if number == 0 else "", fault, str(count), *own)
    for name, why in chaos.skipped.items():
        table.add_row(name, f"skipped: {why}", "0")
    return table


def _too_few(chaos: Chaos) -> list[str]:
    """What a full run has to have injected and has not."""
    told = [f"no kill at {point}" for point in POINTS if not chaos.faults()[f"kill at {point}"]]
    if chaos.kills() < LEAST_KILLS:
        told.append(f"{chaos.kills()} kills of {LEAST_KILLS}")
    if chaos.rebalances() < LEAST_REBALANCES:
        told.append(f"{chaos.rebalances()} rebalances of {LEAST_REBALANCES}")
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="each fault once or twice")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=150.0, help="records a second while faults are injected")
    parser.add_argument("--lanes", type=int, default=2, help="scenarios at a time, each on a cluster of its own")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="scenarios whose name holds this; repeatable")
    parser.add_argument("--json", action="store_true", help="the result as one JSON object on standard output")
    parser.add_argument("--keep", type=Path, help="keep the workers' logs and data below this folder")
    options = parser.parse_args(arguments)
    chosen = [one for one in SCENARIOS if not options.only or any(text in one.name for text in options.only)]
    if not chosen:
        parser.error(f"no scenario has a name like that; there are: {', '.join(one.name for one in SCENARIOS)}")
    if reason := brokers.prepare():
        parser.error(reason)
    with tempfile.TemporaryDirectory(prefix="leadline-chaos-") as scratch:
        folder = options.keep / f"run-{os.getpid()}" if options.keep else Path(scratch)
        chaos = Chaos(options.seed, options.rate, SHORT if options.short else FULL, folder, Console(stderr=True, width=150))
        try:
            chaos.run(chosen, options.lanes)
        finally:
            chaos.close()
    complete = not options.short and not options.only
    short_of = _too_few(chaos) if complete else []
    if options.json:
        print(json.dumps({**chaos.report(), "too_few": short_of}))  # noqa: T201
    else:
        Console(width=150).print(_table(chaos))
    for tally in chaos.wrong():
        chaos.console.print(f"{tally.name}: {tally.difference}", style="red", highlight=False)
    for told in short_of:
        chaos.console.print(f"too few: {told}", style="red", highlight=False)
    return 1 if chaos.wrong() or short_of else 0


if __name__ == "__main__":
    sys.exit(main())
