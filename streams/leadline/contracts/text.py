"""Text of unknown origin, made fit for a log line, a header or a page. Pure."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

__all__ = ["MASK", "MAX_PRINTED", "plural", "printable", "redact", "safe"]

MASK: Final = "***"
MAX_PRINTED: Final = 500
"""How many characters of one text :func:`printable` shows unless told otherwise."""


class _Late:
    """A pattern that is compiled when it is first used: these take a tenth of the start of a program that may never need them."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._of = pattern, flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(*self._of)


_SECRET_WORD = (
    r"(?:(?:pass(?:word|wd|phrase)|secret)[\w.-]{0,32}|pass|pwd|token|api[_-]?key|(?:access|account|encryption|signing)[_-]?key"
    r"|auth(?:orization)?|credentials?|private[_-]?key|sasl[._-]\w{0,32}|session[_-]?key|cookie)"
)
# The name may be quoted (JSON, also JSON escaped within JSON). What it is prefixed with (`db_password`, `X-Api-Key`) is not
# looked at: trying every length of it at every position is what a long word would make slow.
_ASSIGNED = _Late(
    rf"""(?imx) (?P<name> {_SECRET_WORD} \\?["']? \s{{0,8}} [:=] \s{{0,8}} )
    (?: (?P<quote> \\?["'] ) .*? (?: (?P=quote) | $ ) | (?: (?:bearer|basic|digest|token) \s+ )? [^\s,;&"'<>}}\])\\]+ )"""
)
_OPTION = _Late(rf"""(?i)(--[a-z0-9-]{{0,32}}?{_SECRET_WORD}[ \t]{{1,8}})(?:"[^"]*"|'[^']*'|[^\s-]\S*)""")
_SCHEME = _Late(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_URL_LOGIN = _Late(r"(?i)\b([a-z][a-z0-9+.-]{1,31}://)[^\s/@:]{0,256}:[^\s/@]{1,256}@")
_KNOWN = _Late(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|glpat-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|ya29\.[A-Za-z0-9_-]{10,}|dop_v1_[a-f0-9]{16,}"
    r"|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
)
_KEY_BLOCK = _Late(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL)


_HINTS = (
    r"p(?:ass|wd|rivate|m_|_v1_)|s(?:ecret|asl|ession[_-]?key|igning[_-]?key|k-)|token|b(?:earer|asic)"
    r"|a(?:pi[_-]?key|uth|kia|iza|cc(?:ess|ount)[_-]?key|29\.)|c(?:redential|ookie|ryption[_-]?key)"
    r"|://|g(?:h[pousr]_|ithub_pat_|lpat-)|xox|eyj|f_"
)
"""A part of everything above that is masked: most texts have none of it, and one look is enough. The fewer letters these parts
begin with, the faster is the look: so `pm_` stands for `npm_`."""
_HINTED = _Late(_HINTS)
"""For lower-case ASCII: forty times as fast as a search that ignores case."""
_HINTED_ANY_CASE = _Late(_HINTS, re.IGNORECASE)


def redact(text: str) -> str:
    """``text`` with what looks like a secret replaced by ``***``.

    Covers ``password=...`` and its like in plain text, JSON and query strings, ``--password ...`` of command lines,
    ``Authorization`` headers, bearer and basic credentials, logins in URLs, PEM private keys and the tokens of well-known
    services. It errs on the side of masking; it is no proof that nothing secret remains.
    """
    hinted = _HINTED.compiled.search(text.lower()) if text.isascii() else _HINTED_ANY_CASE.compiled.search(text)
    if not hinted:
        return text
    text = _KEY_BLOCK.compiled.sub(MASK, text)
    text = _ASSIGNED.compiled.sub(lambda found: f"{found['name']}{MASK}", text)
    text = _OPTION.compiled.sub(lambda found: f"{found[1]}{MASK}", text)
    text = _SCHEME.compiled.sub(lambda found: f"{found[1]} {MASK}", text)
    text = _URL_LOGIN.compiled.sub(lambda found: f"{found[1]}{MASK}@", text)
    return _KNOWN.compiled.sub(MASK, text)


_UNPRINTABLE = re.compile(
    # C0 and C1 controls, DEL, line and paragraph separators, bidirectional overrides, zero-width characters, surrogates.
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plural(count: int, one: str, many: str = "", form: str = "d") -> str:
    """``1 event``, ``2 events``; ``many`` where that is more than an ``s`` at the end. ``form``: of the number."""
    return f"{count:{form}} {one if count == 1 else many or one + 's'}"


def printable(text: str, limit: int = MAX_PRINTED) -> str:
    """``text`` on one line, at most ``limit`` characters and a mark of how many were cut off.

    Control characters (so also terminal escape sequences), invisible and direction-changing characters and lone
    surrogates are shown as escapes; the result can always be encoded as UTF-8.
    """
    cut = len(text) - limit
    head = text[:limit] if cut > 0 else text
    shown = head if head.isascii() and head.isprintable() else _UNPRINTABLE.sub(_escape, head)
    return f"{shown}…(+{cut})" if cut > 0 else shown


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def safe(text: str, limit: int = MAX_PRINTED) -> str:
    """Redacted, then printable. Only the head of a very long text is looked at."""
    return printable(redact(text[: 8 * limit]), limit)
