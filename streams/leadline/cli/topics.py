"""``leadline topics``: create the topics of the table, or check those on the cluster against it."""

from __future__ import annotations

import click

from leadline.cli import exits
from leadline.cli.kafka import bootstrap_option, settings_for
from leadline.cli.screen import console, emit_json

__all__ = ["topics"]


@click.group("topics", epilog=exits.EPILOG)
def topics() -> None:
    """Create or check the topics."""


@topics.command("create", epilog=exits.EPILOG)
@bootstrap_option
@click.option("--partitions", type=click.IntRange(1), help="Partitions of new topics. [env: LEADLINE_PARTITIONS]")
@click.option("--replication", type=click.IntRange(1), help="Replicas of new topics. [env: LEADLINE_REPLICATION]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def create(bootstrap: str | None, partitions: int | None, replication: int | None, as_json: bool) -> int:
    """Create the topics that are missing; what exists is left as it is, and is checked afterwards.

    Partitions cannot be added later: choose enough for the largest fleet to come.
    """
    from leadline.processors import topics as cluster

    settings = settings_for(bootstrap, partitions=partitions, replication=replication)
    created = cluster.create(settings)
    return _tell(bootstrap, created, as_json, partitions)


@topics.command("check", epilog=exits.EPILOG)
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(bootstrap: str | None, as_json: bool) -> int:
    """Compare the topics on the cluster with the table: partitions, and the settings that matter.

    Exits 1 where one is missing, or differs so that no worker would start; what is only worse than it should be is a warning.
    """
    return _tell(bootstrap, [], as_json)


def _tell(bootstrap: str | None, created: list[str], as_json: bool, asked: int | None = None) -> int:
    from leadline.processors import topics as cluster

    findings = cluster.check(settings_for(bootstrap))
    good = not any(finding.problem for finding in findings)
    if as_json:
        emit_json({"ok": good, "created": created, "topics": [finding._asdict() for finding in findings]})
        return exits.OK if good else exits.FAILED
    out = console()
    for finding in findings:
        count = "missing" if finding.partitions is None else f"{finding.partitions} partitions"
        state = (
            "created" if finding.topic in created else "differs" if finding.problem else "warning" if finding.warning else "ok"
        )
        style = "red" if finding.problem else "yellow" if finding.warning else "green"
        out.print(f"{state:<8} {finding.topic:<24} {count}", style=style)
        if asked is not None and finding.partitions not in (None, asked) and finding.topic not in created:
            out.print(f"         asked for {asked}, has {finding.partitions}: what exists is left as it is")
        if finding.warning:
            out.print(f"         {finding.warning}. {finding.remedy}")
    for told in cluster.problems(findings):
        out.print(told)
    return exits.OK if good else exits.FAILED
