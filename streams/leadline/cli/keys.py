"""``leadline keys``: make a key to sign with, and show the public half that others check with."""

from __future__ import annotations

from pathlib import Path

import click

from leadline.cli import exits
from leadline.cli.screen import emit_json
from leadline.errors import Refused

__all__ = ["keys"]


@click.group("keys", epilog=exits.EPILOG)
def keys() -> None:
    """Make and show keys for signed commands and events."""


@keys.command("new", epilog=exits.EPILOG, short_help="Make a private key; print its public half.")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def new(file: str, as_json: bool) -> int:
    """Make a private key in FILE, which must not be there yet and which only its owner may read; print its public half."""
    from leadline.security.keys import new_key_file

    try:
        key = new_key_file(file)
    except FileExistsError:
        raise Refused(f"{file!r} is there already, and a key is never written over: choose another name") from None
    return _show([key.key_id], [key.public_pem()], as_json)


@keys.command("public", epilog=exits.EPILOG, short_help="Print the public keys of a file.")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def public(file: str, as_json: bool) -> int:
    """Print the public keys of FILE, a private key's or public ones, each after a line with its id."""
    from leadline.security.keys import KeyRing, SigningKey

    if b"PRIVATE KEY" in Path(file).read_bytes():
        key = SigningKey.read(file, "FILE")
        return _show([key.key_id], [key.public_pem()], as_json)
    ring = KeyRing.read(file, "FILE")
    return _show(ring.ids, ring.pems(), as_json)


def _show(ids: list[str], pems: list[str], as_json: bool) -> int:
    if as_json:
        emit_json({"keys": [{"key_id": one, "public": pem.splitlines()[1]} for one, pem in zip(ids, pems, strict=True)]})
    else:
        click.echo("".join(f"# {one}\n{pem}" for one, pem in zip(ids, pems, strict=True)), nl=False)
    return exits.OK
