"""The same security for aiokafka. Only the monitor has this library."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from leadline.security.connection import Security
from leadline.security.tokens import TokenSource

__all__ = ["aiokafka_arguments"]


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    """A token for each connection; asking for one does not hold up the event loop."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens = tokens

    async def token(self) -> str:
        return (await asyncio.to_thread(self._tokens.token))[0]


def aiokafka_arguments(security: Security) -> dict[str, Any]:
    """Arguments of an aiokafka client. Raises :class:`leadline.errors.SettingsError` where a file cannot be used."""
    found: dict[str, Any] = {}
    if security.security_protocol != "PLAINTEXT":
        found["security_protocol"] = security.security_protocol
    if security.tls:
        found["ssl_context"] = security.context()
    if security.sasl:
        found["sasl_mechanism"] = security.sasl_mechanism
        tokens = security.tokens()
        if tokens is not None:
            found["sasl_oauth_token_provider"] = _Provider(tokens)
        else:
            found |= {"sasl_plain_username": security.sasl_username, "sasl_plain_password": security.password()}
    return found
