"""The provenance ledger: what is in an agent's working set, and which raw spans it can still be traced to.

A graph by id. Raw spans are its leaves; a summary points at its sources; nothing is ever told apart or merged by content,
so equal texts with different ids stay different spans. Pure: no clock, no I/O. Not thread safe: it belongs to the thread
that compacts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from leadline.agent.items import UNIT, Item, check_id, check_sum, count, in_units, mask_of, score
from leadline.agent.leaves import Leaves
from leadline.agent.measuring import measure
from leadline.agent.shares import Share, shares
from leadline.agent.signals import Signals
from leadline.errors import LedgerError

__all__ = ["Ledger", "LedgerError"]


class Ledger:
    """Follows a working set through adding, summarizing, evicting and restoring, and measures it.

    Ids are strings, unique in the ledger. Every method that takes ids raises :class:`LedgerError` for an unknown or
    repeated one, before anything is changed; so does every one that would take the working set past 2**53 - 1 tokens.

    It remembers what left the working set, some hundred bytes an item, until :meth:`forget` is told. In a session of 100,000
    spans a measurement takes some 5 ms with 1,000 items retained, some 50 ms with 10,000.
    """

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._retained: dict[str, Item] = {}
        self._summaries: dict[str, Item] = {}
        """The summaries among them."""
        self._raw_tokens = 0
        """Of the others."""
        self._tokens = 0
        """Of all that is retained."""
        self._scored = 0
        """How many retained items have a salience."""
        self._scores = 0
        """The sum of those, exact, in parts of :data:`leadline.agent.items.UNIT`."""
        self._leaves = Leaves()
        self._measured: Signals | None = None
        """The last measurement, until anything changes."""
        self._gone = 0

    # -- what happens to the working set

    def add_raw(
        self,
        span_id: str,
        tokens: int,
        salience: float | None = None,
        *,
        copy_of: str | None = None,
        wraps: str | None = None,
    ) -> None:
        """A message, tool result or document chunk enters the working set.

        ``copy_of``: the id of a raw span whose text this repeats; both count as one distinct span. ``wraps``: the id of a
        summary whose text this carries (re-injected as an ordinary message); it counts as summary tokens at that depth.
        """
        if copy_of is not None and wraps is not None:
            raise LedgerError(f"{span_id!r} cannot be both a copy of a span and a wrapped summary")
        self._check_new(span_id)
        tokens, salience = count(span_id, tokens), score(span_id, salience)
        check_sum(self._tokens + tokens)
        if wraps is not None:
            wrapped = self._known(wraps)
            if wrapped.sources is None:
                raise LedgerError(f"{span_id!r} wraps {wraps!r}, which is a raw span; use copy_of")
            self._enter(Item(span_id, tokens, salience, wrapped.sources, wrapped.depth, mask=self._mask_of(wrapped)))
            return
        if copy_of is None:
            bit = self._leaves.new()
        else:
            original = self._known(copy_of)
            if original.sources is not None:
                raise LedgerError(f"{span_id!r} copies {copy_of!r}, which is a summary; use wraps")
            bit = original.bit
        item = Item(span_id, tokens, salience, bit=bit)
        self._leaves.join(item)
        self._enter(item)

    def summarize(self, summary_id: str, sources: Iterable[str], tokens: int, salience: float | None = None) -> None:
        """A summary of ``sources`` (raw spans or summaries, retained or not) enters the working set.

        The sources stay until they are evicted. No sources at all is allowed: such a summary has no ground.
        """
        ids = tuple(dict.fromkeys(sources))
        if summary_id in ids:
            raise LedgerError(f"{summary_id!r} cannot be its own source: provenance must not be a cycle")
        self._check_new(summary_id)
        tokens, salience = count(summary_id, tokens), score(summary_id, salience)
        check_sum(self._tokens + tokens)
        found = [self._known(source) for source in ids]
        depth = 1 + max((item.depth for item in found), default=0)
        mask = 0
        for item in found:
            mask |= self._mask_of(item)
        self._enter(Item(summary_id, tokens, salience, ids, depth, mask=mask))

    def evict(self, ids: Iterable[str], *, archived: bool = False) -> None:
        """Items leave the working set. Their text is gone, unless ``archived``: then it can still be produced on demand.

        An item that had left already is only marked anew: this is also how an archive's purge is told.
        """
        for item in self._known_all(ids):
            if item.sources is None and item.retained and not archived:
                self._gone += 1
            self._release(item)
            item.archived = archived
            self._settle(item)

    def restore(self, ids: Iterable[str], tokens: Mapping[str, int] | None = None) -> None:
        """Items come back into the working set, verbatim. ``tokens``: their new counts, where those differ."""
        items = self._known_all(ids)
        counts = [count(item.id, (tokens or {}).get(item.id, item.tokens)) for item in items]
        check_sum(self._tokens + sum(counts) - sum(item.tokens for item in items if item.retained))
        for item, tokens_now in zip(items, counts, strict=True):
            self._release(item, again=True)
            item.tokens = tokens_now
            self._keep(item)
            self._settle(item)

    def expand(self, summary_id: str) -> list[str]:
        """Replace a summary by the leaves below it whose text can be produced; returns the ids that came back.

        Raises :class:`LedgerError` when ``summary_id`` is no summary or no leaf below it can be produced (then the
        summary stays: dropping text that nothing replaces is the agent's decision).
        """
        summary = self._summary(summary_id)
        producible = self._leaves.ids(self._mask_of(summary) & self._leaves.available)
        if not producible:
            raise LedgerError(f"{summary_id!r} has no leaf whose text can still be produced")
        back = [leaf for leaf in producible if not self._leaves.held(self._items[leaf].bit)]
        self.restore(back)
        self.evict([summary_id])
        return back

    def forget(self, ids: Iterable[str]) -> list[str]:
        """Items that are over: the agent will neither restore nor summarize them again. Returns those that were forgotten.

        No measurement changes by it: what is retained stays, and so does what a summary still known was made from, with the
        archived copies of it. Forgotten spans are no longer told as :meth:`lost`, and an id may be given anew.
        """
        asked = {item.id for item in self._known_all(ids)}
        waiting = list(asked)
        gone: list[str] = []
        while waiting:
            item = self._items.get(waiting.pop())
            if item is None or item.id not in asked or self._needed(item):
                continue
            del self._items[item.id]
            gone.append(item.id)
            if item.sources is None:
                self._leaves.leave(item)
            for source in map(self._items.__getitem__, item.sources or ()):
                source.users -= 1
                # An archived copy may have stayed for this one's sake.
                waiting += [source.id] if source.sources is not None else [one.id for one in self._leaves.carriers(source.bit)]
        return gone

    def rescore(self, salience: Mapping[str, float | None]) -> None:
        """The agent's scorer changed its mind about these items (a new query, recency decay)."""
        items = self._known_all(salience)
        scores = [score(item.id, salience[item.id]) for item in items]
        for item, salience_now in zip(items, scores, strict=True):
            if item.retained:
                self._score(item.salience, -1)
                self._score(salience_now, 1)
            item.salience = salience_now

    # -- what can be asked of it

    def measure(self) -> Signals:
        """All signals of the working set as it is now. Cost: one pass over the retained summaries; none where nothing changed."""
        if self._measured is None:
            self._measured = self._measure()
        return self._measured

    def _measure(self) -> Signals:
        mean = self._scores / UNIT / self._scored if self._scored else None
        return measure(self._summaries.values(), self._mask_of, self._leaves, self._raw_tokens, mean)

    def leaves(self, summary_id: str) -> list[str]:
        """Ids of the distinct leaf spans below a summary, producible or not, in the order they were added."""
        return self._leaves.ids(self._mask_of(self._summary(summary_id)))

    def unreachable(self, summary_id: str) -> list[str]:
        """Those of :meth:`leaves` whose text can no longer be produced."""
        return self._leaves.ids(self._mask_of(self._summary(summary_id)) & ~self._leaves.available)

    def missing(self, summary_id: str) -> list[str]:
        """Those of :meth:`leaves` that no retained item carries verbatim: what an expansion would have to bring back."""
        return self._leaves.ids(self._mask_of(self._summary(summary_id)) & ~self._leaves.verbatim)

    def lost(self) -> list[str]:
        """Leaf spans that were added once and are neither retained nor reachable now, in the order they were added."""
        return self._leaves.ids_without(self._reachable(self._retained.values()))

    def spans_if(self, evicted: Iterable[str], restored: Iterable[str]) -> int:
        """What ``distinct_source_spans`` would be if these items were evicted and those raw spans came back."""
        gone = {item.id for item in self._known_all(evicted)}
        back = 0
        for item in self._known_all(restored):
            back |= 1 << item.bit
        kept = [item for item in self._retained.values() if item.id not in gone]
        return (self._reachable(kept, self._leaves.available | back) | back).bit_count()

    def shares(self, archives: bool, gone: Iterable[str] = ()) -> list[Share]:
        """What would be lost with each retained item, were those in ``gone`` evicted already. Cost: one pass.

        ``archives``: raw spans that leave are archived, so that a retained summary still leads to them.
        """
        left = set(gone)
        raw = [item for item in self._retained.values() if item.sources is None and item.id not in left]
        summaries = [
            (item, self._mask_of(item) & self._leaves.available) for item in self._summaries.values() if item.id not in left
        ]
        found = shares(raw, summaries, self._leaves, archives)
        return [found[item_id] for item_id in self._retained if item_id in found]

    def is_summary(self, item_id: str) -> bool:
        """Whether a summarizer wrote it (also where it was re-injected)."""
        return self._known(item_id).sources is not None

    def carried(self, span_id: str) -> bool:
        """Whether a retained item carries this raw span's text verbatim: itself, or a copy."""
        return self._leaves.held(self._known(span_id).bit)

    def grounded(self, summary_id: str) -> bool:
        """Whether at least one leaf below the summary can still be produced."""
        return bool(self._mask_of(self._known(summary_id)) & self._leaves.available)

    def tokens(self, item_id: str) -> int:
        """Tokens of an item, retained or not."""
        return self._known(item_id).tokens

    def retained(self, item_id: str) -> bool:
        """Whether the item is in the working set."""
        return self._known(item_id).retained

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._items

    def __iter__(self) -> Iterator[str]:
        """Ids of the retained items, in the order in which they came in."""
        return iter(list(self._retained))

    def __len__(self) -> int:
        """How many items are retained."""
        return len(self._retained)

    @property
    def spans_added(self) -> int:
        """Distinct leaf spans that were ever added."""
        return self._leaves.added

    @property
    def spans_dropped(self) -> int:
        """How often a raw item was evicted without an archive, so far."""
        return self._gone

    # -- inside

    def _needed(self, item: Item) -> bool:
        """Whether a measurement, now or later, depends on it."""
        carriers = self._leaves.carriers(item.bit) if item.sources is None and item.archived else (item,)
        return item.retained or item.users > 0 or any(one.retained or one.users for one in carriers)

    def _enter(self, item: Item) -> None:
        for source in item.sources or ():
            self._items[source].users += 1
        self._items[item.id] = item
        self._keep(item)
        self._settle(item)

    def _keep(self, item: Item) -> None:
        """It is in the working set from now on; it was not until now."""
        item.retained = True
        self._retained[item.id] = item
        self._score(item.salience, 1)
        self._tokens += item.tokens
        if item.sources is None:
            self._raw_tokens += item.tokens
        else:
            self._summaries[item.id] = item

    def _release(self, item: Item, again: bool = False) -> None:
        """It leaves the working set, if it is there. ``again``: it comes back at once, to the place that it had."""
        if not item.retained:
            return
        item.retained = False
        self._score(item.salience, -1)
        self._tokens -= item.tokens
        if item.sources is None:
            self._raw_tokens -= item.tokens
        if not again:
            self._retained.pop(item.id, None)
            self._summaries.pop(item.id, None)

    def _settle(self, item: Item) -> None:
        """Bring the masks in line with what became of ``item``."""
        self._measured = None
        if item.sources is None:
            self._leaves.settle(item)
        else:
            item.mask = self._mask_of(item) if item.retained else None
            if not item.retained:
                item.listed = None

    def _score(self, salience: float | None, sign: int) -> None:
        """A salience counts from now on, or no longer."""
        if salience is not None:
            self._measured = None
            self._scored += sign
            self._scores += sign * in_units(salience)

    def _reachable(self, items: Iterable[Item], available: int | None = None) -> int:
        """Mask of the leaves at or below ``items`` whose text can be produced."""
        verbatim: list[int] = []
        union = 0
        for item in items:
            if item.sources is None:
                verbatim.append(item.bit)
            else:
                union |= self._mask_of(item)
        union |= mask_of(verbatim)
        return union & (self._leaves.available if available is None else available)

    def _mask_of(self, item: Item) -> int:
        """Mask of all leaves at or below ``item``. Walks without recursion: hierarchies can be deeper than the stack."""
        if item.mask is not None:
            return item.mask
        if item.sources is None:
            return 1 << item.bit
        mask, seen, stack = 0, {item.id}, [item]
        while stack:
            at = stack.pop()
            if at.sources is None:
                mask |= 1 << at.bit
            elif at.mask is not None:
                mask |= at.mask
            else:
                fresh = [source for source in at.sources if source not in seen]
                seen.update(fresh)
                stack.extend(self._items[source] for source in fresh)
        return mask

    def _known(self, item_id: str) -> Item:
        try:
            return self._items[item_id]
        except KeyError:
            raise LedgerError(f"unknown id {item_id!r}: it was never added to this ledger") from None

    def _summary(self, item_id: str) -> Item:
        item = self._known(item_id)
        if item.sources is None:
            raise LedgerError(f"{item_id!r} is a raw span, not a summary")
        return item

    def _known_all(self, ids: Iterable[str]) -> list[Item]:
        return [self._known(item_id) for item_id in dict.fromkeys((ids,) if isinstance(ids, str) else ids)]

    def _check_new(self, item_id: str) -> None:
        check_id(item_id)
        if item_id in self._items:
            raise LedgerError(f"{item_id!r} is in the ledger already; ids are given once, also to re-injected text")
