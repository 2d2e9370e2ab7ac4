"""Eviction that keeps its ground: the most salient stays, as long as each summary that stays keeps a source that can be produced.

For runtimes that would rather prevent an inversion than be halted for it. It costs tokens: raw spans stay that salience alone
would have dropped, in the place of something else; the plan says how many. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final

from leadline.agent import checks
from leadline.agent.items import Item, bits
from leadline.agent.ledger import Ledger
from leadline.detection.policy import FleetPolicy
from leadline.detection.signals import span_floor

__all__ = ["EvictionPlan", "GroundedEviction"]

_DEFAULT: Final = FleetPolicy()


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """What is to leave, and what grounding costs. Tokens throughout.

    ``evict``: ids, in the order of leaving. ``held``: raw spans that stay though salience alone would have dropped them, with
    their ``held_tokens``. ``displaced``: what leaves in their place, though salience alone would have kept it, with its
    ``displaced_tokens``. ``tokens``: of what stays; ``fits``: within the budget. It does not fit only where the floor of source
    spans alone is larger than the budget.
    """

    evict: tuple[str, ...]
    held: tuple[str, ...]
    held_tokens: int
    displaced: tuple[str, ...]
    displaced_tokens: int
    tokens: int
    fits: bool


class GroundedEviction:
    """Plans one eviction pass over a ledger; changes nothing.

    ``archives``: the texts of raw spans that leave can still be produced, so that summaries still lead to them. ``policy``: whose
    floor of source spans holds. Items without a salience count as the least salient.
    """

    def __init__(self, *, archives: bool = False, policy: FleetPolicy = _DEFAULT) -> None:
        self._archives = archives
        self._policy = policy

    def plan(self, ledger: Ledger, token_budget: int, session_start_spans: int) -> EvictionPlan:
        """What is to leave so that what stays has at most ``token_budget`` tokens (of raw and summary text: without fixed ones).

        ``session_start_spans``: the baseline of the floor. Raises :class:`leadline.errors.Refused` for numbers that are none.
        """
        budget = checks.whole("token_budget", token_budget)
        floor = span_floor(checks.whole("session_start_spans", session_start_spans), self._policy)
        items = list(ledger._retained.values())
        order = sorted(items, key=lambda item: float("-inf") if item.salience is None else item.salience)
        left = _Left(ledger, items, self._archives, floor)
        gone = left.shrink(order, budget)
        plain = _by_salience_alone(order, budget)
        gone_ids = {item.id for item in gone}
        held = [item for item in plain if item.id not in gone_ids and item.sources is None]
        plain_ids = {item.id for item in plain}
        displaced = [item for item in gone if item.id not in plain_ids]
        return EvictionPlan(
            evict=tuple(item.id for item in gone),
            held=tuple(item.id for item in held),
            held_tokens=sum(item.tokens for item in held),
            displaced=tuple(item.id for item in displaced),
            displaced_tokens=sum(item.tokens for item in displaced),
            tokens=left.tokens,
            fits=left.tokens <= budget,
        )


class _Left:
    """The working set as it would be."""

    def __init__(self, ledger: Ledger, items: list[Item], archives: bool, floor: int) -> None:
        self.tokens = sum(item.tokens for item in items)
        self._archives = archives
        self._below = {item.id: tuple(bits(ledger._mask_of(item))) for item in items if item.sources is not None}
        self._carriers = Counter(item.bit for item in items if item.sources is None)
        self._archived = {
            bit
            for bit in {*self._carriers, *(bit for below in self._below.values() for bit in below)}
            if any(carrier.archived and not carrier.retained for carrier in ledger._leaves.carriers(bit))
        }
        self._above: dict[int, set[str]] = defaultdict(set)
        for summary_id, below in self._below.items():
            for bit in below:
                self._above[bit].add(summary_id)
        self._reach = {summary_id: sum(map(self._producible, below)) for summary_id, below in self._below.items()}
        self._spans = sum(map(self._reachable, {*self._carriers, *self._above}))
        # A session that is below its floor already must not fall any further.
        self._floor = min(floor, self._spans)

    def shrink(self, order: list[Item], budget: int) -> list[Item]:
        """Let the least salient leave, as far as grounding allows. Where that is not enough, summaries leave and let go of what
        was held for their sake."""
        gone: list[Item] = []
        waiting = order
        while self.tokens > budget:
            held = []
            for item in waiting:
                if self.tokens > budget and self._leave(item):
                    gone.append(item)
                else:
                    held.append(item)
            if len(held) == len(waiting):
                break
            waiting = held
        return gone

    def _leave(self, item: Item) -> bool:
        """``False``: it is held."""
        return self._summary_leaves(item) if item.sources is not None else self._span_leaves(item)

    def _summary_leaves(self, item: Item) -> bool:
        lost = [bit for bit in self._below[item.id] if self._reachable(bit) and not self._stays(bit, item.id)]
        if self._spans - len(lost) < self._floor:
            return False
        for bit in self._below[item.id]:
            self._above[bit].discard(item.id)
        self._spans -= len(lost)
        self.tokens -= item.tokens
        return True

    def _span_leaves(self, item: Item) -> bool:
        bit = item.bit
        last = self._carriers[bit] == 1
        gone = last and not self._archives and bit not in self._archived
        if gone and any(self._reach[summary_id] == 1 for summary_id in self._above[bit]):
            return False
        lost = last and (gone or not self._above[bit])
        if lost and self._spans - 1 < self._floor:
            return False
        self._carriers[bit] -= 1
        if self._archives:
            self._archived.add(bit)
        if gone:
            for summary_id in self._above[bit]:
                self._reach[summary_id] -= 1
        self._spans -= lost
        self.tokens -= item.tokens
        return True

    def _producible(self, bit: int) -> bool:
        return self._carriers[bit] > 0 or bit in self._archived

    def _reachable(self, bit: int) -> bool:
        return self._carriers[bit] > 0 or (bit in self._archived and bool(self._above[bit]))

    def _stays(self, bit: int, without: str) -> bool:
        """Whether a leaf stays reachable when this summary leaves."""
        return self._carriers[bit] > 0 or bool(self._above[bit] - {without})


def _by_salience_alone(order: list[Item], budget: int) -> list[Item]:
    tokens, gone = sum(item.tokens for item in order), []
    for item in order:
        if tokens <= budget:
            break
        tokens -= item.tokens
        gone.append(item)
    return gone
