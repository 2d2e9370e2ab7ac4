"""``leadline check``: does the closed loop work on this cluster, from an agent's event to its halt and its release?"""

from __future__ import annotations

import os
import time
import uuid

import click

from leadline.cli import exits
from leadline.cli.kafka import bootstrap_option, consumer, partitions_of, settings_for
from leadline.cli.screen import console, emit_json
from leadline.contracts.topics import COMMANDS

__all__ = ["check"]

_REACH_S = 10.0


@click.command("check", epilog=exits.EPILOG)
@bootstrap_option
@click.option("--fleet", default="leadline-check", show_default=True, help="The fleet that the session belongs to.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=60.0, show_default=True, metavar="S", help="Wait for each answer."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(bootstrap: str | None, fleet: str, timeout: float, as_json: bool) -> int:
    """Send a session that loses its grounding through the cluster, and wait for its halt and its release.

    It needs what an agent needs: to write leadline.events and to read leadline.commands. The policy in force must enforce
    `inversion` for its fleet. Exits 1 when an answer does not come, 3 when no broker is there to begin with.
    """
    from leadline.agent import connect
    from leadline.cli.round_trip import round_trip

    settings = settings_for(bootstrap)
    reader = consumer(settings)
    try:
        partitions_of(reader, COMMANDS.name, settings, min(timeout, _REACH_S))
    finally:
        reader.close()
    session_id = f"leadline-check-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    # Without a spool: what is not delivered now is not to come later.
    with connect(settings.bootstrap, fleet=fleet, security=settings, idempotence=settings.idempotence, spool=False) as client:
        result = round_trip(client, session_id, timeout)
    if as_json:
        emit_json({"ok": not result.missing, **result._asdict()})
    elif result.missing:
        console().print(f"not ok: {result.missing}; session {session_id}. Are the monitor's workers up and ready?", style="red")
    else:
        told = f"halted after {result.halted_after_s:.2f} s, released {result.resumed_after_s:.2f} s after its repair"
        console().print(f"ok: session {session_id} was {told}", style="green")
    return exits.FAILED if result.missing else exits.OK
