"""What a signature covers, and how it is written: one header beside the record, over the record's exact bytes.

The header is ``leadline-signature: ed25519 KEY SIGNATURE``: the key's id (16 hexadecimal digits) and the signature, base64url
without padding. Signed are the bytes ``leadline-signature/1``, the topic's name as :mod:`leadline.contracts.topics` has it, and
the value, with a zero byte between them: what was signed as an event is no command, and who copies a record to another partition
changes nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["HEADER", "Signature", "key_id", "read_signature", "signed_bytes"]

HEADER: Final = "leadline-signature"

_SHAPE: Final = re.compile(rb"ed25519 ([0-9a-f]{16}) ([A-Za-z0-9_-]{86})")


class Signature(NamedTuple):
    """Which key signed, and the 64 bytes of the signature."""

    key_id: str
    signature: bytes

    def encode(self) -> bytes:
        """As the header's value."""
        return b"ed25519 " + self.key_id.encode() + b" " + base64.urlsafe_b64encode(self.signature).rstrip(b"=")


def key_id(public: bytes) -> str:
    """The id of a public key, from its 32 bytes: nobody has to choose one, and no two keys share one."""
    return hashlib.sha256(public).hexdigest()[:16]


def signed_bytes(topic: str, value: bytes) -> bytes:
    """What is signed for ``value`` on ``topic``."""
    return b"\0".join((b"leadline-signature/1", topic.encode(), value))


def read_signature(headers: Iterable[tuple[str, bytes | None]]) -> Signature | None:
    """The record's signature; ``None`` where it has none, several, or one that cannot be read."""
    given = [value for name, value in headers if name == HEADER]
    found = _SHAPE.fullmatch(given[0]) if len(given) == 1 and given[0] is not None else None
    if found is None:
        return None
    try:
        return Signature(found[1].decode(), base64.urlsafe_b64decode(found[2] + b"=="))
    except binascii.Error:
        return None
