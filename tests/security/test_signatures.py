"""Signed commands and events: what is signed, what the monitor refuses, and under which name."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any, Literal

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from leadline.commands.fold import Admit, Folded, Incoming, fold
from leadline.contracts.codec import encode
from leadline.contracts.events import Round
from leadline.contracts.manual import Manual
from leadline.contracts.session_state import Counts
from leadline.contracts.signatures import HEADER, Signature, key_id, read_signature
from leadline.contracts.times import format_ms
from leadline.processors.signed import admitting
from leadline.security.keys import FleetKeys, SigningKey
from tests.agent.support import command
from tests.security.signing import key, ring
from tests.support.core import START as NOW
from tests.support.core import Monitor, ack, end, round_, start, tick

COMMANDS, EVENTS = "leadline.commands", "leadline.events"


# -- what is signed


def test_the_signature_is_that_of_the_document(tmp_path: Path) -> None:
    """By hand, with the first test vector's key of RFC 8032: the id, the bytes that are signed, the header."""
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    private = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
    one = SigningKey(private)
    assert one.public == public
    assert one.key_id == hashlib.sha256(public).hexdigest()[:16] == key_id(public)
    expected = private.sign(b'leadline-signature/1\x00leadline.commands\x00{"a":1}')
    text = base64.urlsafe_b64encode(expected).decode().rstrip("=")
    assert one.sign(COMMANDS, b'{"a":1}') == f"ed25519 {one.key_id} {text}".encode()
    assert read_signature([("x", b"y"), (HEADER, one.sign(COMMANDS, b'{"a":1}'))]) == Signature(one.key_id, expected)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(HEADER, None)],
        [(HEADER, b"")],
        [(HEADER, b"ed25519 0123456789abcdef " + b"A" * 85)],
        [(HEADER, b"rsa 0123456789abcdef " + b"A" * 86)],
        [(HEADER, b"ed25519 0123456789ABCDEF " + b"A" * 86)],
        [(HEADER, b"ed25519 0123456789abcdef " + b"A" * 86)] * 2,
    ],
)
def test_what_is_no_signature_or_several_is_none(headers: list[tuple[str, bytes | None]]) -> None:
    assert read_signature(headers) is None


def test_one_bit_another_topic_or_another_key_is_found_out(tmp_path: Path) -> None:
    mine, other = key(tmp_path, "mine"), key(tmp_path, "other")
    value = b'{"kind":"halt"}'
    made = read_signature([(HEADER, mine.sign(COMMANDS, value))])
    assert ring(mine).fault(COMMANDS, value, made) == ""
    assert ring(mine, other).fault(COMMANDS, value, made) == ""
    assert ring(mine).fault(COMMANDS, value.replace(b"h", b"i", 1), made) == "bad-signature"
    assert ring(mine).fault(EVENTS, value, made) == "bad-signature"
    assert ring(other).fault(COMMANDS, value, made) == "foreign-key"
    assert ring(mine).fault(COMMANDS, value, None) == "unsigned"
    assert made is not None
    claimed = Signature(other.key_id, made.signature)
    assert ring(mine, other).fault(COMMANDS, value, claimed) == "bad-signature"


# -- the monitor


class Checking(Monitor):
    """A monitor that has keys of fleets."""

    def __init__(self, keys: FleetKeys) -> None:
        super().__init__()
        self.admit: Admit | None = admitting(keys)

    def fold(self, batch: list[Incoming]) -> Folded:
        return fold(batch, self.load, self.policy, self.now, self.admit)

    def say(self, event: Any, by: SigningKey | None = None) -> str:
        """Send an event, signed or not; the reason of its dead letter, empty where there is none."""
        before = len(self.dead)
        self.send(event, headers=((HEADER, by.sign(EVENTS, encode(event))),) if by else ())
        return self.dead[-1].reason if len(self.dead) > before else ""


@pytest.fixture
def fleet(tmp_path: Path) -> tuple[Checking, SigningKey, SigningKey]:
    """Fleets f1 and f2 have a key each; others have none."""
    first, second = key(tmp_path, "first"), key(tmp_path, "second")
    return Checking(FleetKeys({"f1": ring(first), "f2": ring(second)})), first, second


def test_a_fleets_events_are_taken_as_it_signed_them_only(fleet: tuple[Checking, SigningKey, SigningKey]) -> None:
    monitor, first, second = fleet
    assert monitor.say(start(), first) == ""
    assert monitor.say(round_(1), first) == ""
    before = monitor.stored.copy()
    assert monitor.say(round_(2)) == "unsigned"
    assert monitor.say(round_(2), second) == "foreign-key"
    assert monitor.say(round_(2, fleet="f2"), second) == "foreign-key", "a session does not change its fleet by another's word"
    assert monitor.say(round_(2, fleet="")) == "unsigned", "and not by leaving it out"
    assert monitor.say(end(fleet="other")) == "foreign-key"
    monitor.send(round_(2), headers=((HEADER, first.sign(EVENTS, encode(round_(3)))),))
    assert monitor.dead[-1].reason == "bad-signature"
    assert monitor.stored == before, "what is refused leaves the session as it was"
    assert monitor.dead[-1].source.value == encode(round_(2)), "and its bytes are kept"
    assert monitor.say(round_(2), first) == ""
    assert monitor.state().last_round == 2


def test_fleets_without_keys_are_as_before_and_the_monitors_own_ticks_need_none(
    fleet: tuple[Checking, SigningKey, SigningKey],
) -> None:
    monitor, first, _ = fleet
    assert monitor.say(round_(1, fleet="plain", session_id="s2")) == ""
    assert monitor.say(round_(1), first) == ""
    assert monitor.say(tick(monitor.now)) == ""


Fleet = tuple[Checking, SigningKey, SigningKey]


def inverting(number: int, **changes: Any) -> Round:
    """Two rounds, the second of which inverts."""
    ratio, spans, salience = ((0.60, 200, 0.5), (0.24, 150, 0.6))[number - 1]
    return round_(number, ratio, distinct_source_spans=spans, query_cosine_retained=salience, summary_depth_max=2, **changes)


@pytest.mark.parametrize("epoch", [0, 10**6])
def test_who_speaks_first_without_a_signature_neither_owns_nor_blinds_a_session(fleet: Fleet, epoch: int) -> None:
    """The fleet's first signed event begins it anew, in the fleet's own epoch; from then on nobody else is heard."""
    monitor, first, second = fleet
    assert monitor.say(round_(7, fleet="plain", epoch=epoch)) == ""
    assert monitor.say(round_(8, fleet="plain", epoch=epoch)) == "", "a fleet without keys is as before"
    assert monitor.say(round_(1)) == "unsigned", "to claim the fleet is not enough"
    assert monitor.say(start(), first) == ""
    assert monitor.say(round_(1), first) == ""
    state = monitor.state()
    assert (state.fleet, state.epoch, state.last_round, state.authenticated) == ("f1", 0, 1, True)
    assert (state.counts, [one.round for one in state.window]) == (Counts(), [1])
    assert monitor.say(round_(9, fleet="plain", epoch=epoch)) == "foreign-key"
    assert monitor.say(round_(2, fleet="f2"), second) == "foreign-key"
    assert monitor.state().last_round == 1


def test_an_event_that_names_no_fleet_begins_no_session_where_fleets_have_keys(fleet: Fleet) -> None:
    monitor, first, _ = fleet
    assert monitor.say(round_(1, fleet="", epoch=10**6)) == "unsigned"
    assert "names no fleet" in monitor.dead[-1].error
    assert monitor.stored == {}
    assert monitor.say(round_(1), first) == ""
    assert monitor.say(round_(2, fleet=""), first) == "", "of a session that is known it may be left out"
    nobody_has_keys = Checking(FleetKeys({}))
    assert nobody_has_keys.say(round_(1, fleet="")) == ""


def test_a_session_of_before_there_were_keys_goes_on(fleet: Fleet) -> None:
    monitor, first, _ = fleet
    monitor.admit = None
    assert monitor.say(round_(1)) == ""
    assert not monitor.state().authenticated
    monitor.admit = admitting(FleetKeys({"f1": ring(first)}))
    assert monitor.say(round_(2), first) == ""
    assert (monitor.state().last_round, len(monitor.state().window), monitor.state().authenticated) == (2, 2, True)


def test_what_others_had_a_session_halted_for_is_released_and_hides_nothing(fleet: Fleet) -> None:
    """A stranger has it halted at a round; the fleet's own trouble at the same round of the same epoch has ids of its own."""
    monitor, first, _ = fleet
    for number in (1, 2):
        assert monitor.say(inverting(number, fleet="plain")) == ""
    assert monitor.told() == ["inversion!", "halt#1"]
    foreign = monitor.commands[0]
    assert monitor.say(inverting(1), first) == ""
    assert monitor.told()[2:] == ["resume#1"]
    resume = monitor.commands[1]
    assert (resume.parameters.releases, resume.seq) == (foreign.command_id, foreign.seq + 1)
    assert "signed" in resume.reason
    assert monitor.say(inverting(2), first) == ""
    assert monitor.told()[3:] == ["inversion!", "halt#1"]
    assert len({one.command_id for one in monitor.commands}) == 3
    assert len({one.incident_id for one in monitor.violations}) == 2


@pytest.mark.parametrize("heeded", [True, False])
def test_what_a_person_halted_stays_halted_when_its_fleet_signs_for_the_first_time(tmp_path: Path, heeded: bool) -> None:
    """An agent that has its fleet's key does not free itself by it: the halt goes to it too, and the order to stop where that was
    not heeded. Only a person releases it."""
    mine, hand = key(tmp_path, "mine"), key(tmp_path, "hand")
    monitor = Checking(FleetKeys({"f1": ring(mine)}, manual=ring(hand)))
    by_hand: dict[str, Any] = {"session_id": "s1", "agent_id": "a1", "who": "ops", "why": "it deletes things"}
    assert monitor.say(inverting(1, fleet="plain", epoch=10**6)) == ""
    assert monitor.say(Manual(event_id="h1", action="halt", ts=format_ms(NOW), **by_hand), hand) == ""
    assert monitor.say(inverting(2, fleet="plain", epoch=10**6)) == ""
    told = ["manual!", "halt#1", "inversion!", "halt#1"]
    assert monitor.told() == told
    if heeded:
        assert monitor.say(ack(monitor.commands[0], epoch=10**6)) == ""
    else:
        for _ in range(3):
            refused = [one for one in monitor.commands if one.rule == "manual"][-1]
            assert monitor.say(ack(refused, "refused", epoch=10**6)) == ""
        told += ["halt#2", "halt#3", "unheeded!", "stop-agent#1"]
        assert monitor.told() == told
    assert monitor.say(round_(1), mine) == ""
    told += ["halt#2", "resume#1"] if heeded else ["halt#4", "resume#1", "stop-agent#2"]
    assert monitor.told() == told
    anew = [one for one in monitor.commands if one.epoch == 0]
    assert [(one.kind, one.fleet, one.rule) for one in anew if one.kind != "resume"] == [
        ("halt", "f1", "manual"),
        ("stop-agent", "f1", "unheeded"),
    ][: 1 if heeded else 2]
    assert {one.rule for one in anew if one.kind == "resume"} == {"inversion"}
    assert len({one.command_id for one in monitor.commands}) == len(monitor.commands)
    assert monitor.say(round_(2), mine) == ""
    assert monitor.told() == told
    assert monitor.say(Manual(event_id="h2", action="resume", ts=format_ms(monitor.now), **by_hand), hand) == ""
    assert monitor.told() == [*told, *["resume#1"] * (1 if heeded else 2)]


def test_what_is_done_by_hand_is_signed_by_who_may(tmp_path: Path) -> None:
    """A fleet's own key does not release its sessions; without keys for that, nobody does where its fleet has keys."""
    mine, hand = key(tmp_path, "mine"), key(tmp_path, "hand")
    halt = Manual(session_id="s1", agent_id="a1", event_id="h1", action="halt", who="ops", why="looks bad", ts=format_ms(NOW))
    keys = {"f1": ring(mine)}
    monitor = Checking(FleetKeys(keys, manual=ring(hand)))
    assert monitor.say(round_(1), mine) == ""
    assert [monitor.say(halt, by) for by in (None, mine)] == ["unsigned", "foreign-key"]
    assert monitor.commands == []
    assert monitor.say(halt, hand) == ""
    assert [one.kind for one in monitor.commands] == ["halt"]
    nobody = Checking(FleetKeys(keys))
    assert nobody.say(round_(1), mine) == ""
    assert nobody.say(halt, hand) == "foreign-key"
    free = Checking(FleetKeys(keys))
    assert free.say(round_(1, fleet="plain")) == ""
    assert free.say(halt) == "", "a fleet without keys is as before"


def test_a_signed_release_does_not_serve_twice(tmp_path: Path) -> None:
    """Copied byte for byte: at once, after another halt, and when it is minutes old; and one without a time never."""
    mine, hand = key(tmp_path, "mine"), key(tmp_path, "hand")
    monitor = Checking(FleetKeys({"f1": ring(mine)}, manual=ring(hand)))

    def act(action: Literal["halt", "resume"], number: int, **changes: Any) -> Manual:
        said = {"event_id": f"h{number}", "ts": format_ms(monitor.now), "who": "ops", "why": "drill"} | changes
        return Manual(session_id="s1", agent_id="a1", action=action, **said)

    assert monitor.say(round_(1), mine) == ""
    assert monitor.say(act("halt", 1), hand) == ""
    release = act("resume", 2)
    assert monitor.say(release, hand) == ""
    assert monitor.say(ack(monitor.commands[-1], "done"), mine) == ""
    assert monitor.say(act("halt", 3), hand) == ""
    told = ["manual!", "halt#1", "resume#1", "manual!", "halt#1"]
    assert monitor.say(release, hand) == ""
    assert (monitor.told(), monitor.state().counts.duplicates) == (told, 1)
    assert monitor.say(act("resume", 4, incident_id=monitor.violations[0].incident_id), hand) == "", "of the first halt"
    assert monitor.say(act("resume", 5, ts=""), hand) == "stale"
    late = act("resume", 6)
    monitor.now += 5 * 60_000 + 1
    assert monitor.say(late, hand) == "stale"
    assert monitor.say(act("resume", 7, ts=format_ms(monitor.now + 5 * 60_000 + 1)), hand) == "stale"
    assert monitor.told() == told
    assert monitor.say(act("resume", 8, incident_id=monitor.violations[1].incident_id), hand) == ""
    assert monitor.told() == [*told, "resume#1"]


def test_strict_means_that_a_fleet_without_keys_is_refused(tmp_path: Path) -> None:
    mine = key(tmp_path, "mine")
    file = tmp_path / "fleets.toml"
    public = mine.public_pem().splitlines()[1]
    file.write_text(f'others = "refuse"\nmanual = ["{public}"]\n[fleets]\nf1 = ["{public}"]\n')
    monitor = Checking(FleetKeys.read(str(file), "LEADLINE_FLEET_KEYS_FILE"))
    assert monitor.say(round_(1), mine) == ""
    assert monitor.say(round_(1, fleet="plain", session_id="s2")) == "foreign-key"
    assert monitor.say(round_(1, fleet="", session_id="s3")) == "foreign-key"


def test_an_acknowledgement_for_a_session_that_is_not_known_is_no_dead_letter(
    fleet: tuple[Checking, SigningKey, SigningKey],
) -> None:
    monitor, _, _ = fleet
    assert monitor.say(ack(command(1, session_id="s9"))) == ""
    assert monitor.ignored == {"unknown-session": 1}
