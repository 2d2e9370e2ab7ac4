"""Ed25519 keys as PEM files: one private key to sign with, several public ones to check with, so that keys can be changed."""

from __future__ import annotations

import base64
import binascii
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leadline.contracts.signatures import Signature, key_id, read_signature, signed_bytes
from leadline.errors import Refused, SettingsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["FleetKeys", "KeyRing", "SigningKey", "new_key_file"]

_PUBLIC: Final = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)
_EXTRA: Final = "signatures need the package cryptography: pip install 'leadline[signing]' (in a clone: pip install '.[signing]')"


class SigningKey:
    """A private key. It shows itself nowhere; its id does."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()
        self.key_id = key_id(self.public)

    @classmethod
    def read(cls, file: str, variable: str) -> SigningKey:
        """From a PEM file (PKCS 8, not encrypted). Raises :class:`SettingsError` that names the variable and the file."""
        load = _library().load_pem_private_key
        content = _content(file, variable)
        try:
            key = load(content, None)
        except (ValueError, TypeError):
            raise _wrong(variable, file, "it holds no private key that can be read") from None
        if not _is_ed25519(key):
            raise _wrong(variable, file, "it holds a key of another kind than Ed25519")
        return cls(key)

    def sign(self, topic: str, value: bytes) -> bytes:
        """The header's value for ``value`` on ``topic``."""
        return Signature(self.key_id, self._key.sign(signed_bytes(topic, value))).encode()

    def public_pem(self) -> str:
        """The public key, for those who are to check."""
        return _pem(self._key.public_key())

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id})"


class KeyRing:
    """Public keys by their id. Anything that one of them signed is taken."""

    def __init__(self, keys: Mapping[str, Ed25519PublicKey]) -> None:
        self._keys = dict(keys)

    @classmethod
    def read(cls, file: str, variable: str) -> KeyRing:
        """From a PEM file with one public key or several, one after the other. Raises :class:`SettingsError`."""
        blocks = _PUBLIC.findall(_content(file, variable))
        if not blocks:
            raise _wrong(variable, file, "it holds no public key")
        return cls(dict(_public(block, variable, file) for block in blocks))

    @classmethod
    def of(cls, texts: list[str], variable: str, file: str) -> KeyRing:
        """From base64 texts, as a PEM file has between its first and last line. Raises :class:`SettingsError`."""
        lines = "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n"
        return cls(dict(_public(lines.format(text).encode(), variable, file) for text in texts))

    @property
    def ids(self) -> list[str]:
        return sorted(self._keys)

    def pems(self) -> list[str]:
        """Each key as PEM, by id."""
        return [_pem(self._keys[one]) for one in self.ids]

    def fault(self, topic: str, value: bytes, signature: Signature | None) -> str:
        """What is wrong: ``unsigned``, ``foreign-key`` or ``bad-signature``; empty where one of these keys signed."""
        if signature is None:
            return "unsigned"
        key = self._keys.get(signature.key_id)
        if key is None:
            return "foreign-key"
        try:
            key.verify(signature.signature, signed_bytes(topic, value))
        except _invalid():
            return "bad-signature"
        return ""


class FleetKeys:
    """The public keys of fleets, from a TOML file; see ``docs/security.md``. ``strict``: a fleet without keys is refused too.
    ``manual``: of those who halt and release by hand."""

    def __init__(self, rings: Mapping[str, KeyRing], *, strict: bool = False, manual: KeyRing | None = None) -> None:
        self._rings = dict(rings)
        self._strict = strict
        self._manual = manual

    @classmethod
    def read(cls, file: str, variable: str) -> FleetKeys:
        """Raises :class:`SettingsError` that says what is wrong with the file."""
        try:
            given: Any = tomllib.loads(_content(file, variable).decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise _wrong(variable, file, f"it is no TOML ({error})") from None
        except RecursionError:
            raise _wrong(variable, file, "it is no TOML (nested too deep)") from None
        unknown = sorted(given.keys() - {"fleets", "others", "manual"})
        fleets, others = given.get("fleets", {}), given.get("others", "accept")
        if unknown or not isinstance(fleets, dict) or others not in ("accept", "refuse"):
            what = f"{unknown[0]!r} is not known" if unknown else "[fleets] or `others` (accept, refuse) is not as it should be"
            raise _wrong(variable, file, what)

        def ring(what: str, keys: Any) -> KeyRing:
            if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
                raise _wrong(variable, file, f"{what} is to have a list of public keys, base64")
            return KeyRing.of(keys, variable, file)

        rings = {name: ring(f"fleet {name[:80]!r}", keys) for name, keys in fleets.items()}
        manual = ring("manual", given["manual"]) if "manual" in given else None
        return cls(rings, strict=others == "refuse", manual=manual)

    def fault(self, topic: str, value: bytes, headers: Any, claimed: str, known: str, authenticated: bool = True) -> str:
        """As :meth:`KeyRing.fault`, for a record that claims to be of fleet ``claimed``, in a session of fleet ``known`` (each
        empty where there is none). ``authenticated``: that is the word of a fleet that signed; else whoever signs may take the
        session over from one that has no keys."""
        if claimed and known and claimed != known and (known in self._rings or (claimed in self._rings and authenticated)):
            return "foreign-key"
        ring = self._ring(claimed, known)
        if ring is not None:
            return ring.fault(topic, value, read_signature(headers))
        if self._strict:
            return "foreign-key"
        # Whoever speaks first must not decide that a session has no fleet.
        return "unsigned" if self._rings and not claimed and not known else ""

    def of(self, claimed: str, known: str) -> bool:
        """Whether an event as :meth:`fault` knows it must be signed by a key of its fleet."""
        return self._ring(claimed, known) is not None

    def _ring(self, claimed: str, known: str) -> KeyRing | None:
        return self._rings.get(known) or self._rings.get(claimed)

    def manual_fault(self, topic: str, value: bytes, headers: Any, claimed: str, known: str) -> str:
        """As :meth:`fault`, for what a person does by hand: where signatures are asked for, a fleet's own key does not do."""
        if not self.manual_of(claimed, known):
            return ""
        return (self._manual or KeyRing({})).fault(topic, value, read_signature(headers))

    def manual_of(self, claimed: str, known: str) -> bool:
        """Whether what a person does by hand must be signed there."""
        return self._manual is not None or self._strict or bool({claimed, known} & self._rings.keys())


def new_key_file(file: str) -> SigningKey:
    """A new private key in a new file that only its owner may read. Raises ``FileExistsError``, or another ``OSError``."""
    library = _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(library.Encoding.PEM, library.PrivateFormat.PKCS8, library.NoEncryption())
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(pem)
    return SigningKey(key)


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise Refused(_EXTRA) from None
    return serialization


def _invalid() -> type[Exception]:
    from cryptography.exceptions import InvalidSignature

    return InvalidSignature


def _is_ed25519(key: Any) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey)


def _public(block: bytes, variable: str, file: str) -> tuple[str, Ed25519PublicKey]:
    try:
        key = _library().load_pem_public_key(block)
    except (ValueError, TypeError, binascii.Error):
        raise _wrong(variable, file, "it holds a public key that cannot be read") from None
    if not _is_ed25519(key):
        raise _wrong(variable, file, "it holds a key of another kind than Ed25519")
    return key_id(key.public_bytes_raw()), key


def _pem(key: Ed25519PublicKey) -> str:
    library = _library()
    der = key.public_bytes(library.Encoding.DER, library.PublicFormat.SubjectPublicKeyInfo)
    return f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(der).decode()}\n-----END PUBLIC KEY-----\n"


def _content(file: str, variable: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise _wrong(variable, file, f"it cannot be read ({error.strerror or error})") from None


def _wrong(variable: str, file: str, problem: str) -> SettingsError:
    return SettingsError(
        f"{variable} is {file!r}: {problem}. `leadline keys new` makes a key, `leadline keys public` shows its public half."
    )
