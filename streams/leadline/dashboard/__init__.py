"""The dashboard: a process of its own that reads what the monitor writes and serves it as a page, without a database.

::

    leadline.sessions ───────────────┐
    leadline.violations, commands ───┼─> reader ─> view ─> hub ──> server-sent events ─> the page
    leadline.events (opened sessions)┴─> history ──────> api ───> JSON

:mod:`view`, :mod:`journal`, :mod:`story` and :mod:`session_page` are pure: bytes and a ``now`` go in, plain data comes out.
"""
