"""Keys for tests, and rings of their public halves."""

from __future__ import annotations

from pathlib import Path

from leadline.security.keys import KeyRing, SigningKey, new_key_file

__all__ = ["key", "ring"]


def key(folder: Path, name: str) -> SigningKey:
    return new_key_file(str(folder / f"{name}.pem"))


def ring(*keys: SigningKey) -> KeyRing:
    return KeyRing.of([one.public_pem().splitlines()[1] for one in keys], "KEYS", "keys")
