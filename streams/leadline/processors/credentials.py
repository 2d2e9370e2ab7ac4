"""The settings' TLS and SASL as Faust wants them."""

from __future__ import annotations

from typing import Any

from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials

from leadline.settings import Settings, client_configs

__all__ = ["credentials"]


def credentials(settings: Settings) -> Any:
    """What Faust calls credentials; ``None`` where the brokers ask for none. The context is always ours: Faust's own default
    cannot be made. Raises :class:`leadline.errors.SettingsError` where a file cannot be used."""
    given = client_configs(settings).aiokafka
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
