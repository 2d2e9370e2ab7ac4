"""Why a broker does not let a client in: the client libraries tell it on the side, and report only that nobody answered."""

from __future__ import annotations

from typing import Any, Final

from leadline.contracts.text import safe

__all__ = ["Refusals"]

_REFUSED: Final = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED")


class Refusals:
    """An ``error_cb`` that remembers the last refusal; any client may be given one."""

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, error: Any) -> None:
        # A broker that closes the handshake is reported as a failed transport.
        if error.name() in _REFUSED or " alert " in error.str():
            self.last = safe(error.str(), 300)

    def why(self, client: Any, otherwise: str) -> str:
        """The refusal of ``client``, where there was one; else what the client library says."""
        client.poll(0)  # Only then does it call back.
        return f"the connection was refused: {self.last}" if self.last else otherwise
