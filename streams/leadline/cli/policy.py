"""``leadline policy``, and the option ``--policy FILE`` of other verbs: thresholds, deadlines and modes of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from leadline.cli import exits
from leadline.cli.screen import emit_json
from leadline.detection.policy import DEFAULT_POLICY, FleetPolicy, Policy

__all__ = ["policy", "policy_option", "read_policy"]

F = TypeVar("F", bound=Callable[..., Any])


def policy_option(function: F) -> F:
    """``--policy``; without it the defaults are in force."""
    return click.option("--policy", "policy_file", metavar="FILE", help="Thresholds and modes as TOML; else the defaults.")(
        function
    )


def read_policy(file: str | None) -> Policy:
    """The policy in ``file``. Raises ``OSError``, or :class:`SettingsError` that says what is wrong with it and where."""
    if file is None:
        return DEFAULT_POLICY
    from leadline.processors.policy_source import read_policy as read

    return read(file)


@click.group("policy", epilog=exits.EPILOG)
def policy() -> None:
    """Check or show a policy: thresholds, deadlines and modes, per fleet."""


@policy.command("check", epilog=exits.EPILOG, short_help="Read policy files whole; exit 2 at one that is wrong.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(files: tuple[str, ...], as_json: bool) -> int:
    """Read each policy file whole; exit 2 at the first that is wrong, with the key and the reason."""
    found = {file: read_policy(file) for file in files}
    if as_json:
        emit_json({file: {"version": one.version, "fleets": sorted(one.fleets)} for file, one in found.items()})
        return exits.OK
    for file, one in found.items():
        fleets = f", fleets {', '.join(sorted(one.fleets))}" if one.fleets else ""
        click.echo(f"{file}: version {one.version}{fleets}: fine")
    return exits.OK


@policy.command("show", epilog=exits.EPILOG, short_help="Print every value in force.")
@policy_option
@click.option("--fleet", default="", help="What holds for this fleet; else the default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(policy_file: str | None, fleet: str, as_json: bool) -> int:
    """Print every value in force, and mark what differs from Leadline's own defaults."""
    found = read_policy(policy_file)
    chosen, usual = found.of(fleet), FleetPolicy()
    values = {name: getattr(chosen, name) for name in FleetPolicy.__struct_fields__}
    if as_json:
        emit_json({"version": found.version, "fleet": fleet} | values)
        return exits.OK
    click.echo(f"version {found.version}" + (f", fleet {fleet}" if fleet else ""))
    width = max(map(len, values))
    for name, value in values.items():
        changed = value != getattr(usual, name)
        click.echo(f"{name:<{width}}  {value}" + (f"  (default {getattr(usual, name)})" if changed else ""))
    return exits.OK
