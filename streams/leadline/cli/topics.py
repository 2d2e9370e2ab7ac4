"""``leadline topics``: create the topics of the table, check those on the cluster against it, print who may do what."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from leadline.cli import exits
from leadline.cli.acls import STRIMZI_VERSIONS, kafka_acls, permissions, strimzi
from leadline.cli.kafka import bootstrap_option, settings_for, waiting
from leadline.cli.screen import console, emit_json
from leadline.contracts.acls import ROLES
from leadline.contracts.acls import acls as contracts_acls
from leadline.contracts.text import plural

__all__ = ["topics"]

F = TypeVar("F", bound=Callable[..., Any])


@click.group("topics", epilog=exits.EPILOG)
def topics() -> None:
    """Create or check the topics, or print who may do what with them."""


@topics.command("create", epilog=exits.EPILOG, short_help="Create the topics that are missing.")
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
    with waiting(settings, cluster.CREATE_S):
        created = cluster.create(settings)
    return _tell(bootstrap, created, as_json, partitions)


@topics.command("check", epilog=exits.EPILOG, short_help="Compare the cluster with the table of topics.")
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(bootstrap: str | None, as_json: bool) -> int:
    """Compare the topics on the cluster with the table: partitions, and the settings that matter.

    Exits 1 where one is missing, or differs so that no worker would start; what is only worse than it should be is a warning.
    """
    return _tell(bootstrap, [], as_json)


def _principal(role: str, name: str) -> Callable[[F], F]:
    return click.option(f"--{role}", default=f"User:{name}", show_default=True, metavar="PRINCIPAL", help=f"{ROLES[role]}.")


@topics.command("acls", epilog=exits.EPILOG, short_help="Print the permissions that each party needs.")
@bootstrap_option
@click.option(
    "--format", "shape", type=click.Choice(["kafka-acls", "strimzi", "json"]), default="kafka-acls", show_default=True,
    help="Lines for Kafka's own tool, Strimzi's KafkaTopic and KafkaUser resources, or JSON.",
)  # fmt: skip
@_principal("monitor", "leadline-monitor")
@_principal("agents", "leadline-agents")
@_principal("operators", "leadline-operators")
@_principal("dashboard", "leadline-dashboard")
@_principal("admin", "leadline-admin")
@click.option("--acting", is_flag=True, help="People act on the dashboard: it may write events and silences too.")
@click.option("--cluster", default="kafka", show_default=True, help="strimzi: the Kafka resource's name.")
@click.option("--partitions", type=click.IntRange(1), help="strimzi: partitions of each topic. [env: LEADLINE_PARTITIONS]")
@click.option("--replication", type=click.IntRange(1), help="strimzi: replicas of each topic. [env: LEADLINE_REPLICATION]")
@click.option(
    "--api-version", type=click.Choice(STRIMZI_VERSIONS), default=STRIMZI_VERSIONS[0], show_default=True,
    help="strimzi: version of its resources; v1beta2 before Strimzi 0.49.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --format json: one JSON object.")
def acls(
    bootstrap: str | None,
    shape: str,
    as_json: bool,
    acting: bool,
    cluster: str,
    partitions: int | None,
    replication: int | None,
    api_version: str,
    **principals: str,
) -> int:
    """Print the permissions that each party needs, and no more: agents write events and read commands; only the monitor writes
    violations and commands. Asks no broker; LEADLINE_APP_ID names the group of the workers.
    """
    for role, principal in principals.items():
        if not re.fullmatch(r"[A-Za-z]+:[^\s*]+", principal):
            raise click.BadParameter(f"--{role} {principal!r} names nobody: give TYPE:NAME, such as User:leadline-{role}")
    settings = settings_for(bootstrap, partitions=partitions, replication=replication)
    wanted = contracts_acls(settings.app_id, acting=acting)
    if as_json or shape == "json":
        emit_json({"acls": permissions(wanted, principals)})
    elif shape == "strimzi":
        click.echo(strimzi(wanted, principals, cluster, settings.partitions, settings.replication, api_version), nl=False)
    else:
        for line in kafka_acls(wanted, principals, settings.bootstrap):
            click.echo(line)
    return exits.OK


def _tell(bootstrap: str | None, created: list[str], as_json: bool, asked: int | None = None) -> int:
    from leadline.processors import topics as cluster

    settings = settings_for(bootstrap)
    with waiting(settings, cluster.CHECK_S):
        findings = cluster.check(settings)
    good = not any(finding.problem for finding in findings)
    if as_json:
        emit_json({"ok": good, "created": created, "topics": [finding._asdict() for finding in findings]})
        return exits.OK if good else exits.FAILED
    out = console()
    for finding in findings:
        count = "missing" if finding.partitions is None else plural(finding.partitions, "partition")
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
