"""TLS and SASL: one set of settings for every client of the brokers, whichever library it is made with."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from leadline.errors import SettingsError
from leadline.security.secret import Secret, secret_of
from leadline.security.tokens import TokenSource

__all__ = ["MECHANISMS", "PROTOCOLS", "READERS", "Security"]

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's names for ``security.protocol``."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_NONE: Final = Secret()


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """How a client proves who it is, and how it knows the broker. The defaults are a broker without either.

    Secrets come from a file, or from the environment; they are in no ``repr`` and in no log.
    """

    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL (TLS), SASL_SSL (TLS and SASL) or SASL_PLAINTEXT, as the brokers' listener is."""
    tls_ca_file: str = ""
    """PEM file of the authorities that sign the brokers' certificates. Empty: those of the system."""
    tls_cert_file: str = ""
    """PEM file of this client's certificate, for mutual TLS."""
    tls_key_file: str = ""
    """PEM file of the private key that belongs to it."""
    tls_key_password: Secret = _NONE
    """Password of that key, where it is encrypted."""
    tls_key_password_file: str = ""
    """A file with that password, instead."""
    tls_verify_hostname: bool = True
    """Refuse a broker whose certificate is another host's."""
    sasl_mechanism: str = ""
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    sasl_username: str = ""
    """User, for PLAIN and SCRAM."""
    sasl_password: Secret = _NONE
    """Password, for PLAIN and SCRAM."""
    sasl_password_file: str = ""
    """A file with that password, instead."""
    sasl_token_file: str = ""
    """For OAUTHBEARER: a file with the token, read anew whenever one is needed."""
    sasl_token_url: str = ""
    """For OAUTHBEARER, instead: where a token is got with the client's own credentials."""
    sasl_client_id: str = ""
    """The client's id there."""
    sasl_client_secret: Secret = _NONE
    """The client's secret there."""
    sasl_client_secret_file: str = ""
    """A file with that secret, instead."""
    sasl_scope: str = ""
    """The scope that is asked for there."""
    allow_sasl_without_tls: bool = False
    """Send credentials over a connection that anybody on the way can read. Brokers on this machine need no such leave."""

    signing_key_file: str = ""
    """Monitor: PEM file of the private key that signs commands. Empty: they are not signed."""
    fleet_keys_file: str = ""
    """Monitor: TOML file of the public keys of the fleets whose events must be signed."""
    command_keys_file: str = ""
    """Agents: PEM file of the monitor's public keys; commands that none of them signed are refused. Empty: all are taken."""
    event_key_file: str = ""
    """Agents: PEM file of the private key that signs this fleet's events. Empty: they are not signed."""

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """From variables named ``LEADLINE_...`` as the monitor's settings are; those that are not of these are left alone.

        Raises :class:`SettingsError`, which names the variable.
        """
        values = {}
        for field in fields(cls):
            variable = f"LEADLINE_{field.name.upper()}"
            text = environ.get(variable, "")
            if text.strip():
                values[field.name] = READERS[field.name](variable, text.strip())
        return cls(**values)

    @property
    def tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    def check(self, bootstrap: str) -> None:
        """Raises :class:`SettingsError` where the settings do not fit together, or would give credentials away."""
        for wrong, told in (*self._of_tls(), *self._of_sasl(bootstrap)):
            if wrong:
                raise SettingsError(told)

    def _of_tls(self) -> list[tuple[bool, str]]:
        given = [name for name in ("tls_ca_file", "tls_cert_file", "tls_key_file") if getattr(self, name)]
        named = f"LEADLINE_{given[0].upper()}" if given else ""
        return [
            (
                bool(given) and not self.tls,
                f"{named} is set, but LEADLINE_SECURITY_PROTOCOL is {self.security_protocol}, which has no TLS. "
                "Give SSL or SASL_SSL, or take it away.",
            ),
            (
                bool(self.tls_cert_file) != bool(self.tls_key_file),
                "LEADLINE_TLS_CERT_FILE and LEADLINE_TLS_KEY_FILE belong together, and one is missing. Give both, or neither.",
            ),
            *_both(self.tls_key_password, self.tls_key_password_file, "TLS_KEY_PASSWORD"),
        ]

    def _of_sasl(self, bootstrap: str) -> list[tuple[bool, str]]:
        given = [name for name in _SASL if getattr(self, name)]
        oauth = self.sasl_mechanism == "OAUTHBEARER"
        named = bool(self.sasl_username) and bool(self.sasl_password or self.sasl_password_file)
        return [
            (
                bool(given) and not self.sasl,
                f"LEADLINE_{given[0].upper() if given else ''} is set, but LEADLINE_SECURITY_PROTOCOL is "
                f"{self.security_protocol}, which has no SASL. Give SASL_SSL, or take it away.",
            ),
            (
                self.sasl and not self.sasl_mechanism,
                f"LEADLINE_SECURITY_PROTOCOL is {self.security_protocol}, and LEADLINE_SASL_MECHANISM is missing. "
                f"Give one of {', '.join(MECHANISMS)}.",
            ),
            (
                self.sasl and not oauth and not named,
                f"LEADLINE_SASL_MECHANISM is {self.sasl_mechanism}, and the user or the password is missing. "
                "Give LEADLINE_SASL_USERNAME, and LEADLINE_SASL_PASSWORD_FILE or LEADLINE_SASL_PASSWORD.",
            ),
            (
                self.sasl and oauth and bool(self.sasl_token_file) == bool(self.sasl_token_url),
                "LEADLINE_SASL_MECHANISM is OAUTHBEARER: give either LEADLINE_SASL_TOKEN_FILE, or LEADLINE_SASL_TOKEN_URL with "
                "LEADLINE_SASL_CLIENT_ID and LEADLINE_SASL_CLIENT_SECRET_FILE.",
            ),
            (
                bool(self.sasl_token_url)
                and not (self.sasl_client_id and (self.sasl_client_secret or self.sasl_client_secret_file)),
                "LEADLINE_SASL_TOKEN_URL needs LEADLINE_SASL_CLIENT_ID, and LEADLINE_SASL_CLIENT_SECRET_FILE or "
                "LEADLINE_SASL_CLIENT_SECRET.",
            ),
            (
                bool(self.sasl_token_url) and not _safe_url(self.sasl_token_url),
                "LEADLINE_SASL_TOKEN_URL is no https address: the client's secret would be sent for anybody to read. Give https://.",
            ),
            *_both(self.sasl_password, self.sasl_password_file, "SASL_PASSWORD"),
            *_both(self.sasl_client_secret, self.sasl_client_secret_file, "SASL_CLIENT_SECRET"),
            (
                self.security_protocol == "SASL_PLAINTEXT" and not self.allow_sasl_without_tls and not _loopback(bootstrap),
                f"LEADLINE_SECURITY_PROTOCOL is SASL_PLAINTEXT, and {bootstrap} is not this machine: credentials would be sent "
                "for anybody on the way to read. Give SASL_SSL; or say LEADLINE_ALLOW_SASL_WITHOUT_TLS=true where that is meant.",
            ),
        ]

    def librdkafka(self) -> dict[str, Any]:
        """Settings of a confluent-kafka client. Raises :class:`SettingsError` where a file cannot be read."""
        config: dict[str, Any] = {}
        if self.security_protocol != "PLAINTEXT":
            config["security.protocol"] = self.security_protocol
        if self.tls:
            self.context()  # It says better than the client library which file is wrong.
            config["ssl.endpoint.identification.algorithm"] = "https" if self.tls_verify_hostname else "none"
            given = {
                "ssl.ca.location": self.tls_ca_file,
                "ssl.certificate.location": self.tls_cert_file,
                "ssl.key.location": self.tls_key_file,
                "ssl.key.password": self._key_password(),
            }
            config |= {name: value for name, value in given.items() if value}
        if self.sasl:
            config["sasl.mechanism"] = self.sasl_mechanism
            tokens = self.tokens()
            if tokens is not None:
                config["oauth_cb"] = lambda _config: tokens.token()
            else:
                config |= {"sasl.username": self.sasl_username, "sasl.password": self.password()}
        return config

    def context(self) -> ssl.SSLContext:
        """The same as a context of the standard library. Raises :class:`SettingsError` where a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise _unusable("LEADLINE_TLS_CA_FILE", self.tls_ca_file, error) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.tls_verify_hostname
        if self.tls_cert_file:
            for name, file in (("LEADLINE_TLS_CERT_FILE", self.tls_cert_file), ("LEADLINE_TLS_KEY_FILE", self.tls_key_file)):
                try:
                    Path(file).open("rb").close()
                except OSError as error:
                    raise _unusable(name, file, error) from None
            try:
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file, self._key_password())
            except (OSError, ValueError) as error:
                named = f"{self.tls_cert_file} with {self.tls_key_file}"
                raise _unusable("LEADLINE_TLS_CERT_FILE", named, error) from None
        return context

    def password(self) -> str:
        """The SASL password, read from its file where it is in one."""
        return secret_of(self.sasl_password, self.sasl_password_file, "LEADLINE_SASL_PASSWORD_FILE")

    def tokens(self) -> TokenSource | None:
        """Where OAUTHBEARER's tokens come from; ``None`` for another mechanism."""
        if self.sasl_mechanism != "OAUTHBEARER":
            return None
        given, file = self.sasl_client_secret, self.sasl_client_secret_file
        return TokenSource(
            file=self.sasl_token_file,
            url=self.sasl_token_url,
            client_id=self.sasl_client_id,
            client_secret=lambda: secret_of(given, file, "LEADLINE_SASL_CLIENT_SECRET_FILE"),
            scope=self.sasl_scope,
            ca_file=self.tls_ca_file,
        )

    def _key_password(self) -> str:
        return secret_of(self.tls_key_password, self.tls_key_password_file, "LEADLINE_TLS_KEY_PASSWORD_FILE")


_SASL: Final = (
    "sasl_mechanism",
    "sasl_username",
    "sasl_password",
    "sasl_password_file",
    "sasl_token_file",
    "sasl_token_url",
    "sasl_client_id",
)


def _both(given: Secret, file: str, name: str) -> list[tuple[bool, str]]:
    return [(bool(given) and bool(file), f"LEADLINE_{name} and LEADLINE_{name}_FILE are both set. Give one of them.")]


def _unusable(variable: str, file: str, error: Exception) -> SettingsError:
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or "no certificate, key or password that fits"
    return SettingsError(f"{variable} is {file!r}: it cannot be used ({why}). Give a PEM file that this process may read.")


def _loopback(bootstrap: str) -> bool:
    return all(_local(server.rpartition(":")[0].strip("[]")) for server in bootstrap.split(","))


def _local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _safe_url(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and _local(parts.hostname or "")))


def _word(*allowed: str) -> Any:
    def read(variable: str, text: str) -> str:
        if text.upper() not in allowed:
            raise SettingsError(f"{variable} is {text[:80]!r}: that is not one. Give one of {', '.join(allowed)}.")
        return text.upper()

    return read


def _text(_variable: str, text: str) -> str:
    return text


def _secret(_variable: str, text: str) -> Secret:
    return Secret(text)


def _flag(variable: str, text: str) -> bool:
    if text.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise SettingsError(f"{variable} is {text[:80]!r}: that is neither true nor false. Give true or false.")
    return text.lower() in ("1", "true", "yes", "on")


_OWN: Final[dict[str, Any]] = {
    "security_protocol": _word(*PROTOCOLS),
    "sasl_mechanism": _word(*MECHANISMS),
    "tls_verify_hostname": _flag,
    "allow_sasl_without_tls": _flag,
    "tls_key_password": _secret,
    "sasl_password": _secret,
    "sasl_client_secret": _secret,
}
READERS: Final[dict[str, Any]] = {field.name: _OWN.get(field.name, _text) for field in fields(Security)}
"""How each field is read from text: ``read(variable, text)``."""
