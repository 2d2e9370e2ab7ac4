"""``leadline broker``: the embedded broker in the foreground."""

from __future__ import annotations

import sys

import click

from leadline.cli import exits
from leadline.cli.screen import emit_json

__all__ = ["broker"]


@click.command("broker", epilog=exits.EPILOG)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9092, show_default=True, help="Port on 127.0.0.1; 0 picks a free one."
)
@click.option("--data-dir", type=click.Path(file_okay=False), help="Where it may keep its files; a temporary one by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when it is ready, on one line.")
def broker(port: int, data_dir: str | None, as_json: bool) -> int:
    """Run the embedded broker until it is told to stop (SIGTERM or Ctrl-C).

    For the demo, development and a single worker; records outlive it only with --data-dir. Not for production.
    """
    from leadline.broker import CAPABILITIES, serve

    def announce(address: str) -> None:
        if as_json:
            cannot = {str(feature): why for feature, why in CAPABILITIES.cannot.items()}
            emit_json({"bootstrap": address, "broker": CAPABILITIES.name, "cannot": cannot})
        else:
            click.echo(f"{CAPABILITIES.name} at {address}; Ctrl-C stops it")
            click.echo(f"not for production, it lacks: {', '.join(map(str, CAPABILITIES.cannot))}")
        sys.stdout.flush()

    serve(announce, port=port, data_dir=data_dir)
    return exits.OK
