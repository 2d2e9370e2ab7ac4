"""Signatures of the monitor: commands go out signed, and events of fleets that have keys are taken only as they signed them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from leadline.commands.fold import Admit, Incoming
from leadline.contracts import limits
from leadline.contracts.codec import Event
from leadline.contracts.manual import Manual
from leadline.contracts.reasons import Reason
from leadline.contracts.session_state import SessionState
from leadline.contracts.signatures import HEADER
from leadline.contracts.times import parse_ms
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
    Reason.STALE: f"its ts is missing, or more than {limits.MAX_BY_HAND_MS // 60_000} minutes from the receive time: it may be a "
    "copy; do it again, and check the clock of who did it",
}
_NO_FLEET: Final = "it names no fleet, and where fleets have keys such an event begins no session: let the agent name its fleet"


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


def _fresh(event: Manual, receive: int) -> bool:
    ts = parse_ms(event.ts)
    return ts is not None and abs(receive - ts) <= limits.MAX_BY_HAND_MS


def admitting(keys: FleetKeys) -> Admit:
    """What the fold asks about each event of an agent."""

    def admit(record: Incoming, event: Event, state: SessionState, receive: int) -> bool:
        claimed, known, value = getattr(event, "fleet", ""), state.fleet, record.value or b""
        if isinstance(event, Manual):
            fault = keys.manual_fault(EVENTS.name, value, record.headers, claimed, known)
            if not fault and keys.manual_of(claimed, known) and not _fresh(event, receive):
                fault = Reason.STALE
        else:
            fault = keys.fault(EVENTS.name, value, record.headers, claimed, known, state.authenticated)
        if fault:
            reason = Reason(fault)
            nobody = not claimed and not known and reason is Reason.UNSIGNED
            raise Malformed(reason, _NO_FLEET if nobody else _SAID[reason])
        # What a person does by hand says nothing of who speaks for the session.
        return not isinstance(event, Manual) and keys.of(claimed, known)

    return admit
