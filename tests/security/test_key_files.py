"""Files of keys: made for their owner alone, and refused with what is wrong."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from leadline.contracts.signatures import HEADER, signed_bytes
from leadline.errors import SettingsError
from leadline.security.keys import FleetKeys, SigningKey
from tests.cli.run import leadline
from tests.security.signing import key

EVENTS = "leadline.events"


def test_a_new_key_is_its_owners_alone_and_openssl_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    made = leadline("keys", "new", str(file), "--json")
    assert made.code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    done = subprocess.run(["openssl", "pkey", "-in", str(file), "-pubout"], capture_output=True, text=True, check=True)
    [one] = made.json["keys"]
    assert one["public"] == done.stdout.splitlines()[1]
    shown = leadline("keys", "public", str(file))
    assert shown.out == f"# {one['key_id']}\n{done.stdout}"
    (tmp_path / "public.pem").write_text(shown.out * 2)
    again = leadline("keys", "public", str(tmp_path / "public.pem"), "--json")
    assert again.json["keys"] == [one]
    twice = leadline("keys", "new", str(file))
    assert (twice.code, "never written over" in twice.err) == (2, True)


def other_kind() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read"), (b"x", "no private key"), (other_kind(), "another kind than Ed25519")]
)
def test_private_keys_that_cannot_be_used(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "key.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=f"LEADLINE_SIGNING_KEY_FILE is .*{said}"):
        SigningKey.read(str(file), "LEADLINE_SIGNING_KEY_FILE")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fleets", "no TOML"),
        ("a=" + "[" * 5_000 + "]" * 5_000, "nested too deep"),
        ("[fleet]", "'fleet' is not known"),
        ('others = "maybe"', "not as it should be"),
        ('[fleets]\nf = "x"', "fleet 'f' is to have a list"),
        ("[fleets]\nf = []", "fleet 'f' is to have a list"),
        ('manual = "x"', "manual is to have a list"),
        ('[fleets]\nf = ["AAAA"]', "public key that cannot be read"),
    ],
)
def test_files_of_fleets_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "fleets.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=f"LEADLINE_FLEET_KEYS_FILE is .*{said}"):
        FleetKeys.read(str(file), "LEADLINE_FLEET_KEYS_FILE")


def test_fleets_whose_names_begin_alike_are_told_apart(tmp_path: Path) -> None:
    first, second, file = key(tmp_path, "first"), key(tmp_path, "second"), tmp_path / "fleets.toml"
    names = {f"{'x' * 80}{number}": one for number, one in enumerate((first, second))}
    lines = (f'{name} = ["{one.public_pem().splitlines()[1]}"]' for name, one in names.items())
    file.write_text("\n".join(["[fleets]", *lines]))
    keys = FleetKeys.read(str(file), "LEADLINE_FLEET_KEYS_FILE")
    headers = [(HEADER, first.sign(EVENTS, b"{}"))]
    assert [keys.fault(EVENTS, b"{}", headers, name, "") for name in names] == ["", "foreign-key"]


def test_a_private_key_shows_nothing_of_itself(tmp_path: Path) -> None:
    one = key(tmp_path, "one")
    secret = (tmp_path / "one.pem").read_text().splitlines()[1]
    assert repr(one) == f"SigningKey({one.key_id})"
    assert secret not in repr(vars(one))
    assert signed_bytes(EVENTS, b"v") == b"leadline-signature/1\x00leadline.events\x00v"
