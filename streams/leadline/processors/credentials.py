"""The settings' way to the brokers for aiokafka, and for Faust, whose clients are aiokafka's."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials

from leadline.security.tokens import TokenSource
from leadline.settings import Settings

__all__ = ["aiokafka_config", "credentials"]


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    """A token for each connection; asking for one does not hold up the event loop."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens = tokens

    async def token(self) -> str:
        return (await asyncio.to_thread(self._tokens.token))[0]


def aiokafka_config(settings: Settings) -> dict[str, Any]:
    """Arguments of an aiokafka client. Raises :class:`leadline.errors.SettingsError` where a file cannot be used."""
    found: dict[str, Any] = {"bootstrap_servers": settings.bootstrap.split(","), "client_id": settings.app_id}
    if settings.security_protocol != "PLAINTEXT":
        found["security_protocol"] = settings.security_protocol
    if settings.tls:
        found["ssl_context"] = settings.context()
    if settings.sasl:
        found["sasl_mechanism"] = settings.sasl_mechanism
        tokens = settings.tokens()
        if tokens is not None:
            found["sasl_oauth_token_provider"] = _Provider(tokens)
        else:
            found |= {"sasl_plain_username": settings.sasl_username, "sasl_plain_password": settings.password()}
    return found


def credentials(settings: Settings) -> Any:
    """What Faust calls credentials; ``None`` where the brokers ask for none. The context is always ours: Faust's own default
    cannot be made. Raises :class:`leadline.errors.SettingsError` where a file cannot be used."""
    given = aiokafka_config(settings)
    context = given.get("ssl_context")
    if "sasl_oauth_token_provider" in given:
        return OAuthCredentials(oauth_cb=given["sasl_oauth_token_provider"], ssl_context=context)
    if settings.sasl:
        return SASLCredentials(
            username=given["sasl_plain_username"],
            password=given["sasl_plain_password"],
            ssl_context=context,
            mechanism=settings.sasl_mechanism,
        )
    return SSLCredentials(context) if context is not None else None
