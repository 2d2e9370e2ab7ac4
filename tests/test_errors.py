"""The error tree's picture is the tree."""

from __future__ import annotations

import re

from leadline import errors
from leadline.agent import LedgerError


def test_the_picture_shows_every_error_below_its_parent() -> None:
    """Four columns of the picture are one level."""
    assert errors.__doc__ is not None
    path: list[str] = []
    drawn: dict[str, str] = {}
    for line in errors.__doc__.splitlines():
        found = re.match(r"(?:    )([│├└─ ]*)(\w+)", line)
        if found is None:
            continue
        depth = len(found[1]) // 4
        path[depth:] = [found[2]]
        drawn[found[2]] = path[depth - 1] if depth else ""
    real = {name: getattr(errors, name).__mro__[1].__name__ for name in errors.__all__}
    assert drawn == real | {"LeadlineError": ""}


def test_a_ledgers_error_is_found_where_its_users_look() -> None:
    """Also a ValueError, as callers of a data structure expect."""
    assert LedgerError is errors.LedgerError
    assert issubclass(LedgerError, ValueError)
