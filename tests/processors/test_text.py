from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.contracts import text
from leadline.contracts.text import MASK, plural, printable, redact, safe
from leadline.processors.logs import Calm, Human, Json, with_fields

SECRETS = [
    ("password=hunter2", "hunter2"),
    ("PASSWORD: hunter2, next", "hunter2"),
    ('{"db_password": "hun ter2"}', "hun ter2"),
    (r"{\"api_key\":\"hunter2\"}", "hunter2"),
    ("x-api-key=hunter2&y=1", "hunter2"),
    ("Authorization: Bearer abc.def.ghi", "abc.def"),
    ("Authorization: Basic aHVudGVyMg==", "aHVudGVyMg"),
    ("sent bearer abcdef123456", "abcdef123456"),
    ("sasl.plain.password=hunter2", "hunter2"),
    ("kafka://user:hunter2@host:9092/x", "hunter2"),
    ("key sk-abcdefghijklmnop1234", "sk-abcdefgh"),
    ("ghp_" + "a" * 36, "a" * 36),
    ("AKIAABCDEFGHIJKLMNOP", "AKIAABCDEF"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
    ("-----BEGIN PRIVATE KEY-----\nMIIE cut off", "MIIE"),
    ("AWS_SECRET_ACCESS_KEY=hunter2", "hunter2"),
    ('"secret_access_key": "hunter2"', "hunter2"),
    (r"{\"aws_secret_access_key\": \"hunter2\"}", "hunter2"),
    ("SECRET_KEY=hunter2", "hunter2"),
    ("password_again: hunter2", "hunter2"),
    ("encryption_key=hunter2", "hunter2"),
    ("signing-key: hunter2", "hunter2"),
    ("access_key=hunter2", "hunter2"),
    ("AccountName=a;AccountKey=hunter2==;x", "hunter2"),
    ("SharedAccessKey=hunter2", "hunter2"),
    ("mysql --password hunter2 --host h", "hunter2"),
    ("run --db-password 'hunter 2' now", "hunter 2"),
    ("run --api-key hunter2", "hunter2"),
    ("glpat-" + "a" * 20, "a" * 20),
    ("hf_" + "a" * 34, "a" * 34),
    ("npm_" + "a" * 36, "a" * 36),
    ("ya29.a0AfH6SMBxxxxxxx", "a0AfH6SMB"),
    ("dop_v1_" + "0a" * 32, "0a0a0a"),
    ('password="never closed', "never"),
    ('password="never closed\nnext line', "never"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_are_masked(text: str, secret: str) -> None:
    shown = redact(text)
    assert secret not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "field `raw_tokens` is missing",
        "expected `int`, got `str` - at `$.token_budget`",
        "token_budget: 100 tokens left",
        "raw_tokens=12",
        "passed: 12, access key lost, the secret of a summary is its ground",
        "leadline broker --port 9092 --token-budget 100",
        "npm_config=1, hf_hub, perf_counter",
    ],
)
def test_ordinary_sentences_stay(text: str) -> None:
    assert redact(text) == text


@given(st.text(alphabet=st.characters(), max_size=2000))
def test_printable_is_one_bounded_encodable_line(text: str) -> None:
    shown = printable(text, 100)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert len(shown) <= 100 * 6 + 20


def test_terminal_escapes_are_shown_not_sent() -> None:
    assert printable("\x1b[31mred\x1b[0m\r\nnext\u202e") == "\\x1b[31mred\\x1b[0m\\r\\nnext\\u202e"


def test_long_text_tells_what_was_cut() -> None:
    assert printable("x" * 600) == "x" * 500 + "…(+100)"


@pytest.mark.parametrize("formatter", [Human(), Json()])
def test_a_log_line_is_one_safe_line(formatter: logging.Formatter) -> None:
    """Whatever an agent wrote into its ids and texts."""
    record = logging.LogRecord("leadline.x", logging.INFO, "f", 1, "said %s", ("\x1b[2J\nfake line password=hunter2",), None)
    record.__dict__.update(with_fields(session="a\nb" + "\x1b" * 5000, offset=7))
    line = formatter.format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert "hunter2" not in line
    assert len(line) < 4000
    if isinstance(formatter, Json):
        assert orjson.loads(line)["offset"] == 7


def test_tracebacks_are_redacted() -> None:
    try:
        raise ValueError("password=hunter2 \x1b[0m")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), (type(error), error, error.__traceback__))
    for formatter in (Human(), Json()):
        shown = formatter.format(record)
        assert "hunter2" not in shown
        assert "\x1b" not in shown


def test_safe_is_both() -> None:
    assert safe("token=abc\n") == "token=***\\n"


def test_one_is_no_plural() -> None:
    assert [plural(count, "event") for count in (0, 1, 2)] == ["0 events", "1 event", "2 events"]
    assert [plural(count, "summary", "summaries") for count in (1, 2)] == ["1 summary", "2 summaries"]
    assert plural(1_234, "record is", "records are", ",") == "1,234 records are"


def test_a_client_that_repeats_itself_is_calmed() -> None:
    """Once in ten seconds a sentence, with how often it was held back; our own sentences always come through."""
    calm = Calm(every_s=10)

    def told(name: str, at: float, text: str = "away %s") -> bool:
        record = logging.LogRecord(name, logging.ERROR, "f", 1, text, (at,), None)
        record.created = at
        passed = calm.filter(record)
        if passed and at == 10:
            assert "repeated=99" in Human().format(record)
        return passed

    assert told("aiokafka", 0)
    assert not any(told("aiokafka", number / 10) for number in range(1, 100))
    assert told("aiokafka", 1, "another")
    assert told("aiokafka", 10)
    assert all(told("leadline.x", number / 10) for number in range(5))


def test_a_long_word_costs_no_more_than_its_length() -> None:
    """Once every length of a prefix was tried at every position. Compared with itself at a quarter of the length."""

    def cost(length: int) -> int:
        text = "a" * length
        started = time.process_time_ns()
        for _ in range(20):
            safe(text)
        return time.process_time_ns() - started

    cost(1_000)
    assert min(cost(32_000) for _ in range(3)) < 40 * max(1, min(cost(8_000) for _ in range(3)))


@pytest.mark.parametrize("text", ["db_password=hunter2", "X-Api-Key: hunter2", '{"my_token": "hunter2"}'])
def test_a_prefixed_name_is_masked_too(text: str) -> None:
    assert "hunter2" not in safe(text)


_SECRETS = (
    "password=x",
    "pwd: x",
    "secret=x",
    "client-secret=x",
    "access_token=x",
    "refresh-token: x",
    "api_key=x",
    "apikey=x",
    "api-key=x",
    "authorization: x",
    "auth=x",
    "credentials=x",
    "credential: x",
    "private-key=x",
    "sasl.jaas=x",
    "session_key=x",
    "cookie: x",
    "Bearer abcdefgh",
    "Basic abcdefgh",
    "https://me:pw@host",
    "sk-aaaaaaaaaaaaaaaaaaaa",
    "ghp_aaaaaaaaaaaaaaaaaaaaaaaa",
    "github_pat_aaaaaaaaaaaaaaaaaaaaaa",
    "xoxb-abcdefghijkl",
    "AKIAABCDEFGHIJKLMNOP",
    "AIzaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "eyJabcdefghij.eyJabcdefgh.x",
    "-----BEGIN RSA PRIVATE KEY-----abc",
    "secret_access_key=x",
    "SECRET_KEY: x",
    "encryption-key=x",
    "signing_key=x",
    "access_key=x",
    "AccountKey=x",
    "--password x",
    "--api-key x",
    "glpat-aaaaaaaaaaaaaaaaaaaa",
    "hf_aaaaaaaaaaaaaaaaaaaaaaaaaa",
    "npm_aaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ya29.aaaaaaaaaaaaa",
    "dop_v1_0123456789abcdef0123",
)


@pytest.mark.parametrize("secret", _SECRETS)
@pytest.mark.parametrize("case", [str, str.upper, str.lower])
@pytest.mark.parametrize("before", ["before", "avant le pass\u00e9", "l\u00e0"])
def test_the_quick_look_passes_over_nothing_that_is_masked(
    secret: str, case: Callable[[str], str], before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is masked with the quick look as it is without it, whether it is of ASCII alone or not."""
    shown = redact(f"{before} {case(secret)} after")
    monkeypatch.setattr(text._HINTED, "compiled", re.compile(""))
    monkeypatch.setattr(text._HINTED_ANY_CASE, "compiled", re.compile(""))
    assert redact(f"{before} {case(secret)} after") == shown
    assert MASK in redact(f"before {secret} after")
