"""One conversation of a framework: what it held before and after a compaction, in the ledger's terms, and what the monitor asks.

A framework's adapter calls :meth:`Conversation.look` with the working set as it is, lets the framework compact unless
:meth:`Conversation.may_compact` says no, and reports with :meth:`Conversation.compacted`. Where the monitor asks for it,
:meth:`Conversation.rehydrate` and :meth:`Conversation.retry` change the working set, and :meth:`Conversation.working` is what
the framework goes on with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from leadline.agent.adapters.entries import Archive, Call, Entry
from leadline.agent.adapters.moments import Groups, Look, Made, Retry
from leadline.agent.adapters.reports import Reports
from leadline.agent.control import State
from leadline.agent.session import Session
from leadline.contracts.orders import Command

__all__ = ["Conversation", "Look", "Retry"]

_CALLS_KEPT: Final = 32
_SUMMARIES_KEPT: Final = 64
_ADOPTED_DEPTH: Final = 64


class Conversation(Reports):
    """Thread safe; the lock is never held while the framework or a model works, or while it waits."""

    def __init__(self, session: Session, archive: Archive) -> None:
        super().__init__(session)
        self.archive = archive
        self._places: dict[str, int] = {}
        self._present: dict[str, Entry] = {}
        self._summaries: dict[str, Entry] = {}
        """The summaries made last, retained or not."""
        self._calls: deque[Made] = deque(maxlen=_CALLS_KEPT)
        self._void: set[str] = set()
        """Of those, the ones that are none: nothing is made of them."""
        self._reopened: dict[str, Retry] = {}
        """By command: its level's input is in the working set, and the framework's own next pass over it is the answer."""
        self._groups = Groups()

    # -- what the framework holds

    def look(self, entries: Iterable[Entry]) -> Look:
        """The working set is now this: what is new enters, what is not among it any more has left.

        Where a summary appears and other things went, a compaction ran out of sight: it is reported as far as it can be told.
        """
        with self._lock:
            entries = list(entries)
            held = tuple(self.session.ledger)
            fresh = [entry for entry in entries if entry.summary and entry.origin is None and entry.id not in self.session.ledger]
            gone = {*held} - {entry.id for entry in entries}
            if fresh and gone:
                call = Call(text=fresh[0].text, opaque=fresh[0].opaque, blind=True)
                self.compacted("out-of-sight", Look(self.session.measure(), held), entries, call)
            present = self._take_in(entries)
            for left in [item for item in self.session.ledger if item not in present]:
                self._leave(left)
            return Look(self.session.measure(), tuple(present))

    def present(self) -> Look:
        """The working set as it was last told."""
        with self._lock:
            return Look(self.session.measure(), tuple(self.session.ledger))

    def hold(self, look: Look) -> None:
        """A pass that was due did not run because the session is halted: the monitor still needs its measurements."""
        with self._lock:
            self._round("hold", look)

    def compacted(self, trigger: str, look: Look, after: Sequence[Entry], call: Call | None = None) -> bool:
        """A pass ran: ``look`` was before it, ``after`` is the working set now. Reports the call and the round.

        ``False``: nothing had changed, and nothing was reported.
        """
        with self._lock:
            ledger = self.session.ledger
            present = {entry.id for entry in after}
            fresh = [entry for entry in after if entry.summary and entry.id not in ledger]
            gone = [item for item in look.ids if item not in present and item in ledger]
            if not fresh and not gone:
                return False
            call = call or Call()
            dropped = [item for item in gone if item not in self._void]
            given = [item for item in call.given if item in ledger and item not in self._void] or dropped
            seen = set(given if call.seen is None else call.seen)
            asked = list(dict.fromkeys((*given, *dropped)))
            read = [item for item in asked if item in seen]
            held = [] if call.void else read
            safe = self._leaves(held) | self._leaves(item for item in present if item in ledger)
            lost = [leaf for item in dropped if item not in held for leaf in self._leaves([item]) if leaf not in safe]
            lost = list(dict.fromkeys(lost))
            if fresh:
                known = [leaf for leaf in lost if leaf not in held and not ledger.is_summary(leaf)]
                self._add_summary(fresh[0], [*held, *known], void=call.void)
            for item in gone:
                self._leave(item)
            ledger.evict([item for item in lost if not ledger.retained(item)])
            self._take_in(after)
            if fresh:
                again = self._answering(read)
                level, retry_of = (None, "") if again is None else (again.level, again.command.command_id)
                unseen = self._without(lost, read)
                self._report_call(fresh[0].id, call, asked, read, unseen, level=level, retry_of=retry_of)
                self._calls.append(Made(self._depth(fresh[0].id), fresh[0].id, tuple(asked)))
            raw = [item for item in lost if not ledger.is_summary(item)]
            self._round(trigger, look, dropped_spans=len(raw))
            return True

    def failed(self, trigger: str, look: Look) -> None:
        """A pass began and raised; the working set is as it was."""
        with self._lock:
            self._round(trigger, look, "failed", 0)

    # -- what the monitor wants

    def may_compact(self) -> bool:
        """Whether compaction is allowed now."""
        return self.session.may_compact()

    @property
    def stopped(self) -> bool:
        """Whether the agent is to leave its loop."""
        return self.session.state is State.STOPPED

    def rehydrate(self) -> bool:
        """Do what the halts ask that were not answered yet; whether the working set changed. What is of one group comes back
        together or not at all."""
        with self._lock:
            self.session.poll()
            if not any(asked.kind == "halt" and asked.parameters.level is None for asked in self.session.pending):
                return False
            result = self._rehydration(self._bring_back)
            self._leave_out_orphans()
            self._present = {item: self._entry(item) for item in self.session.ledger}
            return result.changed

    def working(self) -> list[Any]:
        """The framework's own objects of the working set: summaries first, then what is verbatim, in the order it came in."""
        with self._lock:
            ledger = self.session.ledger
            order = sorted(self._present, key=lambda item: (not ledger.is_summary(item), self._places.get(item, 0)))
            return [self._present[item].payload for item in order]

    def shallow(self, ids: Iterable[str]) -> list[Entry]:
        """What a summarizer is to be given so that its summary is no deeper than was commanded: summaries that are too deep
        already give way to their originals, where all of these can be had."""
        with self._lock:
            cap = self.session.depth_cap
            found: dict[str, Entry] = {}
            for item in ids:
                leaves = [self._entry(leaf) for leaf in self._ordered(self._leaves([item]))]
                deep = cap is not None and self._depth(item) >= max(1, cap)
                whole = bool(leaves) and all(leaf.payload is not None for leaf in leaves)
                for entry in leaves if deep and whole else [self._entry(item)]:
                    found.setdefault(entry.id, entry)
            return list(found.values())

    def retry(self) -> Retry | None:
        """The next level that the monitor wants summarized again, from its whole input. One that cannot be is refused."""
        with self._lock:
            self.session.poll()
            for command in self.session.retries:
                if command.command_id in self._reopened:
                    continue
                found = self._retry(command)
                if found is not None:
                    return found
                if self.session.may_compact():
                    self.session.refuse(command, "the input of that level cannot be put before the summarizer again")
            return None

    def retried(self, retry: Retry, summary: Entry, call: Call) -> None:
        """The level was summarized again: ``summary`` takes its predecessor's place. The call's report answers the command."""
        with self._lock:
            ledger = self.session.ledger
            ids = [entry.id for entry in retry.entries]
            seen = set(ids if call.seen is None else call.seen)
            read = [item for item in ids if item in seen]
            self._add_summary(summary, ids, void=call.void)
            for leaf in self._leaves(read):
                self._leave(leaf) if not ledger.retained(leaf) else None
            for gone in [retry.replaces] if retry.replaces else ids:
                self._leave(gone)
                self._present.pop(gone, None)
            if call.void:
                ledger.evict([leaf for leaf in self._leaves(ids) if not ledger.retained(leaf)])
            lost = self._without(self._leaves(ids), read)
            self._calls.append(Made(retry.level, summary.id, tuple(ids)))
            self._report_call(summary.id, call, ids, read, lost, level=retry.level, retry_of=retry.command.command_id)

    def reopen(self, retry: Retry) -> bool:
        """For a framework that cannot be asked for a level again: its input takes the summary's place in the working set, and the
        next pass that has all of it before it answers the command. ``False``: there is no room for it."""
        with self._lock:
            ledger = self.session.ledger
            if retry.replaces:
                back = [entry.id for entry in retry.entries if not ledger.retained(entry.id)]
                if sum(map(ledger.tokens, back)) - ledger.tokens(retry.replaces) > self.session.free_tokens:
                    return False
                ledger.restore(back)
                self._leave(retry.replaces)
                self._present = {item: self._entry(item) for item in ledger}
            self._reopened[retry.command.command_id] = retry
            return True

    def refuse(self, retry: Retry, why: str) -> None:
        """The level could not be summarized again."""
        with self._lock:
            self.session.refuse(retry.command, why)

    def origin(self, summary_id: str) -> tuple[list[str], int]:
        """Leaves and depth of a summary, to be kept with it for a later process."""
        with self._lock:
            return self._ordered(self._leaves([summary_id])), self._depth(summary_id)

    def __contains__(self, item: object) -> bool:
        return item in self.session.ledger

    # -- inside: entering and leaving

    def _take_in(self, entries: Iterable[Entry]) -> dict[str, Entry]:
        present: dict[str, Entry] = {}
        for entry in entries:
            if entry.id not in present:
                present[entry.id] = entry
                self._enter(entry)
        self._present = present
        return present

    def _enter(self, entry: Entry) -> None:
        ledger = self.session.ledger
        if entry.id in ledger:
            if not ledger.retained(entry.id) or ledger.tokens(entry.id) != entry.tokens:
                ledger.restore([entry.id], {entry.id: entry.tokens})
        elif entry.summary:
            self._adopt(entry)
        else:
            ledger.add_raw(entry.id, entry.tokens)
            self._places[entry.id] = len(self._places)
        self._groups.add(entry)
        if not ledger.is_summary(entry.id):
            for gone in self.archive.put(entry.id, entry.payload):
                if gone in ledger and not ledger.retained(gone):
                    ledger.evict([gone])

    def _leave(self, item: str) -> None:
        self.session.ledger.evict([item], archived=item in self.archive)

    def _adopt(self, entry: Entry) -> None:
        """A summary that an earlier process made: its leaves as far as it says, and its depth."""
        ledger = self.session.ledger
        origin = entry.origin
        below: list[str] = []
        for leaf in () if origin is None else origin.leaves:
            if leaf not in ledger:
                ledger.add_raw(leaf, 0)
                self._places.setdefault(leaf, len(self._places))
                self._leave(leaf)
            below.append(leaf)
        for step in range(min(_ADOPTED_DEPTH, 1 if origin is None else origin.depth) - 1):
            name = f"{entry.id[:200]}~{step + 1}"
            if name not in ledger:
                ledger.summarize(name, below, 0)
                ledger.evict([name])
            below = [name]
        self._add_summary(entry, below)

    def _add_summary(self, entry: Entry, sources: Sequence[str], *, void: bool = False) -> None:
        self.session.ledger.summarize(entry.id, sources, entry.tokens)
        self._places[entry.id] = len(self._places)
        self._summaries[entry.id] = entry
        self._present[entry.id] = entry
        self._void |= {entry.id} if void else set()
        while len(self._summaries) > _SUMMARIES_KEPT:
            oldest = next(iter(self._summaries))
            del self._summaries[oldest]
            self._void.discard(oldest)

    # -- inside: reporting

    def _report_call(
        self,
        summary_id: str,
        call: Call,
        asked: Sequence[str],
        read: Sequence[str],
        lost: Sequence[str],
        *,
        level: int | None = None,
        retry_of: str = "",
    ) -> None:
        counts: dict[str, Any] = {
            "declared_input_tokens": call.declared_tokens,
            "consumed_input_tokens": call.consumed_tokens,
            "output_tokens": call.output_tokens,
            "output_cap": call.output_cap,
            "stop_reason": call.stop_reason,
        }
        if not call.blind and (not call.opaque or call.seen is not None):
            sources, seen = self._leaves(asked), self._leaves(read)
            counts |= {"source_spans": len(sources), "seen_spans": len(sources & seen), "unseen_span_ids": list(lost)}
        told: Any = {name: value for name, value in counts.items() if value is not None}
        level = self._depth(summary_id) if level is None else level
        self._call(level, call.text, not call.opaque, retry_of, told)

    # -- inside: the monitor's wishes

    def _answering(self, read: Iterable[str]) -> Retry | None:
        """The level that a pass over these has summarized again, by itself."""
        pending = {command.command_id for command in self.session.retries}
        self._reopened = {name: retry for name, retry in self._reopened.items() if name in pending}
        read = set(read)
        return next((retry for retry in self._reopened.values() if read.issuperset(entry.id for entry in retry.entries)), None)

    def _retry(self, command: Command) -> Retry | None:
        ledger = self.session.ledger
        level = command.parameters.level
        for made in reversed(self._calls):
            if level not in (None, made.level):
                continue
            if ledger.retained(made.summary_id):
                return self._whole(command, made.level, made.summary_id, made.given)
            below = self._leaves(made.given)
            for item in filter(ledger.is_summary, tuple(ledger)):
                leaves = self._leaves([item])
                if leaves & below:  # It was summarized again since: what came of it starts anew from the originals.
                    return self._whole(command, made.level, item, self._ordered(leaves | below))
            # It gave its place to its originals: they are summarized anew, unless a halt wants them as they are.
            return self._whole(command, made.level, "", made.given) if self.session.may_compact() else None
        return None

    def _whole(self, command: Command, level: int, replaces: str, ids: Iterable[str]) -> Retry | None:
        entries = tuple(self._entry(item) for item in ids)
        if not entries or any(entry.payload is None for entry in entries):
            return None
        return Retry(command, level, replaces, entries)

    def _bring_back(self, span: str) -> int | None:
        """For :meth:`leadline.agent.session.Session.rehydrate`; with a message come those that it cannot do without."""
        ledger = self.session.ledger
        beside = [mate for mate in self._groups.mates(span) if not ledger.retained(mate)]
        if any(item not in self.archive for item in (span, *beside)):
            return None
        ledger.restore(beside)
        return ledger.tokens(span)

    def _leave_out_orphans(self) -> None:
        """Making room may have taken one of those that belong together."""
        ledger = self.session.ledger
        for item in [held for held in ledger if self._groups.mates(held)]:
            if not all(ledger.retained(mate) for mate in self._groups.mates(item)):
                self._leave(item)

    # -- inside: the graph

    def _entry(self, item: str) -> Entry:
        held = self._present.get(item) or self._summaries.get(item)
        if held is not None:
            return held
        return Entry(item, self.session.ledger.tokens(item), self.archive.get(item))

    def _leaves(self, ids: Iterable[str]) -> set[str]:
        """Leaf spans at or below; a summary that stands on nothing known counts as a leaf itself."""
        return set(self._walk(ids))

    def _without(self, leaves: Iterable[str], ids: Iterable[str]) -> list[str]:
        """Those of ``leaves`` that are not below ``ids``."""
        below = self._leaves(ids)
        return [leaf for leaf in leaves if leaf not in below]

    def _walk(self, ids: Iterable[str]) -> Iterator[str]:
        ledger = self.session.ledger
        for item in ids:
            yield from (ledger.leaves(item) if ledger.is_summary(item) else ()) or (item,)

    def _ordered(self, ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=lambda item: self._places.get(item, 0))

    def _depth(self, item: str) -> int:
        return next((summary.depth for summary in self.session.measure().summaries if summary.id == item), 0)
