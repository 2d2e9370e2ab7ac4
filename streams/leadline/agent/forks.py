"""What a forked child must not share with its parent is put aside before the fork and made anew in the child.

Everything that holds a lock, a thread, a client or a file registers here. Reached through :func:`os.register_at_fork`, so that
it also works where nobody calls the SDK between the fork and its next use.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol

__all__ = ["Forkable", "follow_forks"]


class Forkable(Protocol):
    """Each method must be quick and must not raise."""

    def before_fork(self) -> None:
        """In the parent, in the thread that forks."""

    def after_fork(self, child: bool) -> None:
        """In the parent as in the ``child``, where no other thread lives any more."""


_all: weakref.WeakSet[Forkable] = weakref.WeakSet()


def follow_forks(one: Forkable) -> None:
    """Tell ``one`` of every fork for as long as it lives."""
    _all.add(one)


def _before() -> None:
    for one in list(_all):
        with contextlib.suppress(Exception):
            one.before_fork()


def _after(child: bool) -> None:
    for one in list(_all):
        with contextlib.suppress(Exception):
            one.after_fork(child)


os.register_at_fork(before=_before, after_in_parent=lambda: _after(False), after_in_child=lambda: _after(True))
