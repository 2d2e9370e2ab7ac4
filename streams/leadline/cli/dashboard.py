"""``leadline dashboard``: the fleet as a web page."""

from __future__ import annotations

from contextlib import ExitStack

import click

from leadline.cli import exits
from leadline.cli.kafka import bootstrap_option, settings_for, waiting
from leadline.cli.policy import policy_option
from leadline.cli.screen import emit_json

__all__ = ["NEEDED", "dashboard"]

NEEDED = {"starlette": "starlette", "sse_starlette": "sse-starlette", "uvicorn": "uvicorn"}


@click.command("dashboard", epilog=exits.EPILOG)
@bootstrap_option
@click.option("--host", metavar="ADDRESS", help="Address to listen on; 127.0.0.1 by default. [env: LEADLINE_DASHBOARD_HOST]")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port to listen on, 8642 by default; 0: any. [env: LEADLINE_DASHBOARD_PORT]"
)
@policy_option
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON object.")
def dashboard(bootstrap: str | None, host: str | None, port: int | None, policy_file: str | None, as_json: bool) -> int:
    """Serve the fleet as a web page until told to stop (SIGTERM or Ctrl-C).

    Reads the monitor's topics, joins no group and keeps nothing: run as many as you like. Beyond loopback it wants
    LEADLINE_DASHBOARD_TOKEN_FILE, or a trusted proxy.
    """
    missing = exits.not_installed(NEEDED)
    if missing:
        raise exits.MissingExtra("dashboard", "dashboard", *missing)
    from leadline.dashboard.reader import REACH_S
    from leadline.dashboard.serve import run

    starting = ExitStack()

    def say(address: str) -> None:
        starting.close()
        if as_json:
            emit_json({"address": address})
        else:
            click.echo(f"the dashboard is at {address}")

    settings = settings_for(bootstrap, dashboard_host=host, dashboard_port=port, policy_file=policy_file)
    with starting:
        starting.enter_context(waiting(settings, REACH_S))
        run(settings, say)
    return exits.OK
