"""``leadline demo``: a fleet of agents with planted trouble, the monitor that finds it, and the verdict."""

from __future__ import annotations

import contextlib
import signal
import webbrowser

import click

from leadline.cli import exits
from leadline.cli.dashboard import NEEDED as PAGE_NEEDED
from leadline.cli.live import LiveView
from leadline.cli.screen import console, emit_json, is_terminal
from leadline.contracts.events import Round

__all__ = ["demo"]

_NEEDED = {"faust": "faust-streaming", "aiokafka": "aiokafka", "rocksdict": "rocksdict"}


@click.command("demo", epilog=exits.EPILOG)
@click.option("--bootstrap", metavar="HOST:PORT,...", help="Run on this cluster, without a broker of its own.")
@click.option("--create-topics", is_flag=True, help="With --bootstrap: create topics that are missing there.")
@click.option("--agents", type=click.IntRange(24, 2_000), default=24, show_default=True, help="Agents in the fleet.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the agents' work.")
@click.option(
    "--duration",
    type=click.FloatRange(12, 3_600),
    help="Seconds that the agents compact; 20 by default, more for more than 30 agents.",
)
@click.option(
    "--dashboard/--no-dashboard",
    default=None,
    help="Serve the web page meanwhile and open it; the default on a terminal.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON object; progress goes to standard error.")
def demo(
    bootstrap: str | None,
    create_topics: bool,
    agents: int,
    seed: int,
    duration: float | None,
    dashboard: bool | None,
    as_json: bool,
) -> int:
    """Run a fleet of agents that compact for real, plant trouble in some, and see the monitor find, stop and release them.

    Starts a broker of its own unless --bootstrap names a cluster; no monitor may run there, and the topics must exist. Exits 1
    where something planted was missed, something healthy was halted, an order was not obeyed and released, or an event was lost.
    """
    missing = exits.not_installed(_NEEDED)
    if missing:
        raise exits.MissingExtra("demo", "demo", *missing)
    from leadline.demo.run import Options, plans, run

    absent = exits.not_installed(PAGE_NEEDED)
    if dashboard and absent:
        raise exits.MissingExtra("demo --dashboard", "dashboard", *absent)
    served = (is_terminal() and not absent) if dashboard is None else dashboard
    options = Options(agents, seed, duration, bootstrap, create_topics, served)
    fleet = plans(options)
    ending = _Ending()
    view = _View(f"leadline demo: {agents} agents", console(stderr=as_json))
    with view:
        for one in fleet:
            view.set_kind(one.session_id, one.agent_id, one.kind)
        report = run(options, fleet, view, view.serve, ending.check)
    if as_json:
        emit_json(report.as_json())
    else:
        report.show(console())
    return exits.OK if report.ok else exits.FAILED


class _Ending:
    """Asked to end, by SIGTERM as by Ctrl-C, the demo stops everything that was started, in order.

    Where an interrupt is raised inside a callback of the client library it is lost: so that it was asked is kept, too.
    """

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._told)

    def _told(self, number: int, frame: object) -> None:
        self._asked = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raises ``KeyboardInterrupt`` where it was lost."""
        if self._asked:
            raise KeyboardInterrupt


class _View(LiveView):
    """Without a terminal a line for every round would bury the rest."""

    def on_round(self, record: Round) -> None:
        if self.interactive:
            super().on_round(record)

    def serve(self, address: str) -> None:
        """The page is at ``address``: said, and opened where there is a browser with a window of its own."""
        self.title += f", {address}"
        self.note(f"dashboard at {address}")
        if self.interactive:
            with contextlib.suppress(webbrowser.Error):
                browser = webbrowser.get()
                # The plain kind may be one that runs in this very terminal.
                if type(browser) is not webbrowser.GenericBrowser:
                    browser.open(address)
