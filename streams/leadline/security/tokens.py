"""Tokens for OAUTHBEARER: from a file that somebody keeps fresh, or from an authorization server."""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Final

from leadline.errors import BrokerError
from leadline.security.secret import Secret, secret_of

__all__ = ["TokenSource"]

_EARLY_S: Final = 60.0
_UNKNOWN_LIFE_S: Final = 300.0
_ANSWER_S: Final = 10.0
_LARGEST: Final = 256 * 1024


class TokenSource:
    """Gives the token that is in force. Thread safe; may block for as long as an authorization server takes, 10 s at most."""

    def __init__(
        self, *, file: str, url: str, client_id: str, client_secret: Callable[[], str], scope: str, ca_file: str
    ) -> None:
        self._file = file
        self._url = url
        self._client_id = client_id
        self._client_secret = client_secret
        self._scope = scope
        self._ca_file = ca_file
        self._kept: tuple[str, float] = ("", 0.0)
        self._lock = threading.Lock()

    def token(self) -> tuple[str, float]:
        """The token, and when it ends (seconds since 1970). Raises :class:`BrokerError`: it may be had later."""
        if self._file:
            text = secret_of(Secret(), self._file, "LEADLINE_SASL_TOKEN_FILE").strip()
            return text, _end(text)
        with self._lock:
            if self._kept[1] - _EARLY_S < time.time():
                self._kept = self._fetch()
            return self._kept

    def _fetch(self) -> tuple[str, float]:
        """The client credentials grant of OAuth 2 (RFC 6749, section 4.4)."""
        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        pair = f"{urllib.parse.quote_plus(self._client_id)}:{urllib.parse.quote_plus(self._client_secret())}"
        request = urllib.request.Request(
            self._url,
            urllib.parse.urlencode(form).encode(),
            {
                "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        context = ssl.create_default_context()
        if self._ca_file:
            context.load_verify_locations(self._ca_file)
        try:
            opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())
            with opener.open(request, timeout=_ANSWER_S) as answer:
                said = json.loads(answer.read(_LARGEST))
            token, life = str(said["access_token"]), float(said.get("expires_in", _UNKNOWN_LIFE_S))
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f"it answered {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
            raise BrokerError(
                f"no token came from LEADLINE_SASL_TOKEN_URL {self._url} ({why}): check it, the client's id and its secret"
            ) from None
        return token, time.time() + life


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers with another address does not get the client's secret sent there."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def _end(token: str) -> float:
    """When a JSON web token says that it ends; one that does not say so is taken to last a few minutes."""
    try:
        body = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return time.time() + _UNKNOWN_LIFE_S
