"""A value that no log, page or traceback shows."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from leadline.errors import SettingsError

__all__ = ["Secret", "secret_of"]

_MASK: Final = "***"
_LARGEST: Final = 64 * 1024


class Secret:
    """Text that shows itself only to who asks with :meth:`reveal`. An empty one is false, and is shown as nothing."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __str__(self) -> str:
        return _MASK if self._text else ""

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not to be copied out of its process")


def secret_of(given: Secret, file: str, variable: str) -> str:
    """The secret, or what is in ``file`` without the line's end. Raises :class:`SettingsError`; its message names the file, and
    never what is in it."""
    if not file:
        return given.reveal()
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(_LARGEST + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise SettingsError(
            f"{variable} is {file!r}: it cannot be read ({error.strerror or error}). Mount it, or name another."
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{variable} is {file!r}: it holds no text. Put the secret alone into it, as UTF-8.") from None
    if not text or len(content) > _LARGEST:
        raise SettingsError(f"{variable} is {file!r}: it is {'too large' if text else 'empty'}. Put the secret alone into it.")
    return text
