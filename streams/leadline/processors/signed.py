"""Signatures of the monitor: commands go out signed, and events of fleets that have keys are taken only as they signed them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from leadline.commands.fold import Admit, Incoming
from leadline.contracts.codec import Event
from leadline.contracts.manual import Manual
from leadline.contracts.reasons import Reason
from leadline.contracts.signatures import HEADER
from leadline.contracts.topics import COMMANDS, EVENTS
from leadline.errors import Malformed
from leadline.processors.outputs import Outgoing, Send, Sent
from leadline.processors.watch import Fold
from leadline.security.keys import FleetKeys, SigningKey
from leadline.settings import Settings

__all__ = ["admitting", "checked", "signing"]

_SAID: Final = {
    Reason.UNSIGNED: "it has no signature that can be read, and its fleet's events must be signed",
    Reason.FOREIGN_KEY: "the key that signed it is not one of those that may, for its session's fleet",
    Reason.BAD_SIGNATURE: "the fleet's key did not sign these bytes",
}


def signing(send: Send, settings: Settings) -> Send:
    """``send``, with a signature on whatever goes to ``leadline.commands``, where the settings have a key for that.

    Raises :class:`leadline.errors.SettingsError` where the key cannot be read.
    """
    if not settings.signing_key_file:
        return send
    key = SigningKey.read(settings.signing_key_file, "LEADLINE_SIGNING_KEY_FILE")

    def signed(record: Outgoing) -> Outgoing:
        if record.topic == COMMANDS.name and record.value is not None:
            return record._replace(headers=(*record.headers, (HEADER, key.sign(COMMANDS.name, record.value))))
        return record

    def send_signed(records: Sequence[Outgoing], timeout_s: float) -> Awaitable[list[Sent | BaseException]]:
        return send([signed(record) for record in records], timeout_s)

    return send_signed


def checked(fold: Fold, settings: Settings) -> Fold:
    """``fold``, which then refuses events that are not signed as their fleet must, where the settings have keys for that.

    Raises :class:`leadline.errors.SettingsError` where the keys cannot be read.
    """
    if not settings.fleet_keys_file:
        return fold
    admit = admitting(FleetKeys.read(settings.fleet_keys_file, "LEADLINE_FLEET_KEYS_FILE"))
    made: Callable[..., object] = partial(fold, admit=admit)  # type: ignore[call-arg]
    return made  # type: ignore[return-value]


def admitting(keys: FleetKeys) -> Admit:
    """What the fold asks about each event of an agent."""

    def admit(record: Incoming, event: Event, known: str) -> None:
        ask = keys.manual_fault if isinstance(event, Manual) else keys.fault
        fault = ask(EVENTS.name, record.value or b"", record.headers, getattr(event, "fleet", ""), known)
        if fault:
            reason = Reason(fault)
            raise Malformed(reason, _SAID[reason])

    return admit
