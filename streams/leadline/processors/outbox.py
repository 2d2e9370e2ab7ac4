"""Outputs on their way: sent at once and in order, while the fold goes on; who stores a state first waits for its outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from leadline.processors.outputs import Delivery, Outgoing

__all__ = ["Outbox"]


class _Lot(NamedTuple):
    records: Sequence[Outgoing]
    letters: Sequence[Outgoing]
    delivered: Callable[[], Any]


class Outbox:
    """One loop, :meth:`run`, sends what :meth:`put` took; one delivery at a time, of all that has gathered, keeps the order.

    Not thread-safe. What :meth:`run` raises ends the work: nothing that waits for a confirmation goes on.
    """

    def __init__(self, delivery: Delivery, most: int) -> None:
        self._delivery = delivery
        self._most = most
        self._lots: list[_Lot] = []
        self._records = 0
        self._put = 0
        self._done = 0
        self._wake = asyncio.Event()
        self._moved = asyncio.Condition()

    @property
    def mark(self) -> int:
        """Stands for all that has been put so far."""
        return self._put

    def put(self, records: Sequence[Outgoing], letters: Sequence[Outgoing], delivered: Callable[[], Any]) -> None:
        """``delivered`` is called once the records are confirmed and the dead letters delivered as well as can be."""
        if not records and not letters and self._done == self._put:
            self._put += 1
            self._done = self._put
            delivered()
            return
        self._lots.append(_Lot(records, letters, delivered))
        self._records += len(records) + len(letters)
        self._put += 1
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._lots:
                lots, self._lots = self._lots, []
                upto = self._put
                records = [record for lot in lots for record in lot.records]
                letters = [letter for lot in lots for letter in lot.letters]
                if records or letters:
                    await asyncio.gather(self._delivery.confirm(records), self._delivery.bury(letters))
                self._records -= len(records) + len(letters)
                for lot in lots:
                    lot.delivered()
                async with self._moved:
                    self._done = upto
                    self._moved.notify_all()

    async def confirmed(self, mark: int) -> None:
        """Wait until all that had been put at ``mark`` is confirmed."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._done >= mark)

    async def room(self) -> None:
        """Wait while there is more than should be on its way."""
        if self._records > self._most:
            async with self._moved:
                await self._moved.wait_for(lambda: self._records <= self._most)
