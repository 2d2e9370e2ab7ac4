"""``leadline monitor``: one worker of the monitor."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import click

from leadline.cli import exits
from leadline.cli.kafka import bootstrap_option, settings_for
from leadline.cli.policy import policy_option, read_policy
from leadline.cli.screen import emit_json
from leadline.security import Secret
from leadline.settings import unknown_variables

__all__ = ["monitor"]

_NEEDED = {"faust": "faust-streaming", "aiokafka": "aiokafka", "rocksdict": "rocksdict"}


@click.command("monitor", epilog=exits.EPILOG)
@bootstrap_option
@click.option("--data-dir", type=click.Path(file_okay=False), help="Local copy of the sessions. [env: LEADLINE_DATA_DIR]")
@click.option("--create-topics", is_flag=True, default=None, help="Create missing topics. [env: LEADLINE_CREATE_TOPICS]")
@policy_option
@click.option("--json", "as_json", is_flag=True, default=None, help="Write the log as JSON lines. [env: LEADLINE_LOG_JSON]")
@click.option("--show-settings", is_flag=True, help="Print the settings in force as one JSON object and exit.")
def monitor(
    bootstrap: str | None,
    data_dir: str | None,
    create_topics: bool | None,
    policy_file: str | None,
    as_json: bool | None,
    show_settings: bool,
) -> int:
    """Run one worker of the monitor until it is told to stop (SIGTERM or Ctrl-C).

    Every further setting is an environment variable LEADLINE_...; as many workers as there are partitions can share the work.
    """
    settings = settings_for(
        bootstrap,
        data_dir=data_dir,
        create_topics=create_topics or None,
        log_json=as_json or None,
        policy_file=policy_file,
    )
    if show_settings:
        shown = {field.name: getattr(settings, field.name) for field in fields(settings)}
        emit_json({name: str(value) if isinstance(value, Path | Secret) else value for name, value in shown.items()})
        for told in unknown_variables():
            click.echo(f"leadline: {told}", err=True)
        return exits.OK
    read_policy(settings.policy_file or None)  # Refused now rather than in the log of a worker.
    missing = exits.not_installed(_NEEDED)
    if missing:
        raise exits.MissingExtra("monitor", "monitor", *missing)
    from leadline.processors.worker import run

    code = run(settings)
    return code if isinstance(code, int) else exits.OK
