"""One set of settings for TLS and SASL: what fits together, what is refused and in which words, and that no secret shows."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from leadline.agent import connect
from leadline.errors import BrokerError, SettingsError
from leadline.processors.credentials import aiokafka_config, credentials
from leadline.security import Secret, Security
from leadline.settings import Settings, client_configs, load_settings
from tests.cli.run import leadline
from tests.security.certificates import Authority

SCRAM = {
    "LEADLINE_SECURITY_PROTOCOL": "SASL_SSL",
    "LEADLINE_SASL_MECHANISM": "SCRAM-SHA-512",
    "LEADLINE_SASL_USERNAME": "u",
    "LEADLINE_SASL_PASSWORD": "hush-hush",
}
AWAY = {"LEADLINE_BOOTSTRAP": "kafka.example:9093"}
TOKEN = {"LEADLINE_SECURITY_PROTOCOL": "SASL_SSL", "LEADLINE_SASL_MECHANISM": "OAUTHBEARER"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"LEADLINE_SECURITY_PROTOCOL": "TLS"}, "LEADLINE_SECURITY_PROTOCOL is 'TLS'"),
        ({**SCRAM, "LEADLINE_SASL_MECHANISM": "GSSAPI"}, "Give one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ({**SCRAM, "LEADLINE_SECURITY_PROTOCOL": "SSL"}, "LEADLINE_SASL_MECHANISM is set, but .* is SSL, which has no SASL"),
        ({**SCRAM, "LEADLINE_SASL_MECHANISM": ""}, "LEADLINE_SASL_MECHANISM is missing"),
        ({**SCRAM, "LEADLINE_SASL_USERNAME": ""}, "the user or the password is missing"),
        ({**SCRAM, "LEADLINE_SASL_PASSWORD": ""}, "the user or the password is missing"),
        ({**SCRAM, "LEADLINE_SASL_PASSWORD_FILE": "/x"}, "LEADLINE_SASL_PASSWORD and LEADLINE_SASL_PASSWORD_FILE are both set"),
        ({**SCRAM, **AWAY, "LEADLINE_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, "kafka.example:9093 is not this machine"),
        (TOKEN, "give either LEADLINE_SASL_TOKEN_FILE, or LEADLINE_SASL_TOKEN_URL"),
        ({**TOKEN, "LEADLINE_SASL_TOKEN_URL": "https://issuer.example/token"}, "needs LEADLINE_SASL_CLIENT_ID"),
        (
            {
                **TOKEN,
                "LEADLINE_SASL_TOKEN_URL": "http://issuer.example/token",
                "LEADLINE_SASL_CLIENT_ID": "i",
                "LEADLINE_SASL_CLIENT_SECRET": "hush-hush",
            },
            "is no https address",
        ),
        ({"LEADLINE_TLS_CA_FILE": "/ca.pem"}, "LEADLINE_TLS_CA_FILE is set, but .* is PLAINTEXT, which has no TLS"),
        ({"LEADLINE_SECURITY_PROTOCOL": "SSL", "LEADLINE_TLS_CERT_FILE": "/c.pem"}, "belong together, and one is missing"),
        ({"LEADLINE_TLS_VERIFY_HOSTNAME": "maybe"}, "neither true nor false"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_variable_and_the_remedy(environ: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        load_settings(environ)
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize(
    "bootstrap", ["127.0.0.1:9092", "localhost:9092,[::1]:9092"], ids=["an address", "a name and another address"]
)
def test_sasl_without_tls_is_let_through_on_this_machine_and_where_it_is_meant(bootstrap: str) -> None:
    plain = {**SCRAM, "LEADLINE_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}
    assert load_settings({**plain, "LEADLINE_BOOTSTRAP": bootstrap}).sasl
    assert load_settings({**plain, **AWAY, "LEADLINE_ALLOW_SASL_WITHOUT_TLS": "true"}).sasl
    with pytest.raises(SettingsError, match="not this machine"):
        load_settings({**plain, "LEADLINE_BOOTSTRAP": f"{bootstrap},10.0.0.1:9092"})


def test_the_same_check_holds_for_an_agent() -> None:
    security = Security.load({**SCRAM, "LEADLINE_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "OTHER": "x"})
    with pytest.raises(SettingsError, match=r"10\.0\.0\.1:9092 is not this machine"):
        connect("10.0.0.1:9092", security=security)


def test_no_secret_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Not in a representation, not in what is printed, not on the way to another process; but the clients get it."""
    settings = load_settings(SCRAM)
    logging.getLogger("test").warning("%s %r", settings, settings.sasl_password)
    shown = f"{settings!r} {settings} {settings.sasl_password} {settings.sasl_password!r} {caplog.text}"
    assert "hush-hush" not in shown
    assert "***" in shown
    with pytest.raises(TypeError, match="not to be copied"):
        pickle.dumps(settings.sasl_password)
    for name, value in SCRAM.items():
        monkeypatch.setenv(name, value)
    printed = leadline("monitor", "--show-settings")
    assert printed.json["sasl_password"] == "***"
    assert "hush-hush" not in printed.out + printed.err
    assert client_configs(settings).confluent["sasl.password"] == "hush-hush"
    assert aiokafka_config(settings)["sasl_plain_password"] == "hush-hush"
    assert credentials(settings).password == "hush-hush"
    assert "hush-hush" not in repr(credentials(settings))
    assert not Secret("")


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), (b"", "is empty"), (b"\xff\xfe", "holds no text")])
def test_a_password_file_that_cannot_be_used(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    environ = {name: value for name, value in SCRAM.items() if name != "LEADLINE_SASL_PASSWORD"}
    settings = load_settings({**environ, "LEADLINE_SASL_PASSWORD_FILE": str(file)})
    with pytest.raises(SettingsError, match=f"LEADLINE_SASL_PASSWORD_FILE is '.*': it.* {said}"):
        _ = client_configs(settings).confluent


def test_a_password_file_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("two words \r\n")
    environ = {name: value for name, value in SCRAM.items() if name != "LEADLINE_SASL_PASSWORD"}
    settings = load_settings({**environ, "LEADLINE_SASL_PASSWORD_FILE": str(tmp_path / "password")})
    assert aiokafka_config(settings)["sasl_plain_password"] == "two words "


def test_mutual_tls_for_both_libraries(authority: Authority, tmp_path: Path) -> None:
    """The context is ours: it checks the broker's certificate and its name, and takes no old version."""
    certificate, key = authority.issue("leadline-monitor", password=b"abc")
    settings = Settings(
        security_protocol="SSL",
        tls_ca_file=str(authority.file),
        tls_cert_file=str(certificate),
        tls_key_file=str(key),
        tls_key_password=Secret("abc"),
    )
    assert client_configs(settings).confluent == {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "leadline",
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": "abc",
    }
    context = aiokafka_config(settings)["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert [dict(pair[0] for pair in one["subject"]) for one in context.get_ca_certs()] == [{"commonName": "test authority"}]
    assert credentials(settings).context.verify_mode == ssl.CERT_REQUIRED
    assert credentials(Settings()) is None


@pytest.mark.parametrize("wrong", ["ca", "certificate", "password"])
def test_files_of_tls_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path, wrong: str) -> None:
    certificate, key = authority.issue("c", password=b"abc")
    settings = Settings(
        security_protocol="SSL",
        tls_ca_file=str(tmp_path / "missing.pem" if wrong == "ca" else authority.file),
        tls_cert_file=str(tmp_path / "missing.crt" if wrong == "certificate" else certificate),
        tls_key_file=str(key),
        tls_key_password=Secret("no" if wrong == "password" else "abc"),
    )
    with pytest.raises(SettingsError, match="LEADLINE_TLS_CA_FILE" if wrong == "ca" else "LEADLINE_TLS_CERT_FILE") as caught:
        _ = client_configs(settings).confluent
    assert "abc" not in str(caught.value).replace(str(tmp_path), "")


class _Issuer(BaseHTTPRequestHandler):
    asked: list[tuple[str, dict[str, list[str]]]]
    life_s: Any = 3600
    status = 200

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.asked.append((self.headers["Authorization"], form))
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": f"token-{len(self.asked)}", "expires_in": self.life_s}).encode())

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def issuer() -> Iterator[tuple[str, type[_Issuer]]]:
    handler = type("Issuer", (_Issuer,), {"asked": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token", handler
    server.shutdown()
    server.server_close()


def source(url: str) -> Security:
    return Security.load(
        {
            **TOKEN,
            "LEADLINE_SASL_TOKEN_URL": url,
            "LEADLINE_SASL_CLIENT_ID": "leadline",
            "LEADLINE_SASL_CLIENT_SECRET": "s3:cret",
            "LEADLINE_SASL_SCOPE": "kafka",
        }
    )


def test_a_token_is_got_with_the_clients_credentials_and_kept_while_it_lasts(issuer: tuple[str, type[_Issuer]]) -> None:
    """The id and the secret go as the standard says, quoted, in the header; the second question costs none."""
    url, server = issuer
    tokens = source(url).tokens()
    assert tokens is not None
    first, end = tokens.token()
    assert (first, tokens.token()[0]) == ("token-1", "token-1")
    assert 3500 < end - time.time() <= 3600
    expected = "Basic " + base64.b64encode(b"leadline:s3%3Acret").decode()
    assert server.asked == [(expected, {"grant_type": ["client_credentials"], "scope": ["kafka"]})]
    server.life_s = 30  # Less than the minute within which a token is renewed.
    short = source(url).tokens()
    assert short is not None
    assert [short.token()[0], short.token()[0]] == ["token-2", "token-3"]


@pytest.mark.parametrize(
    ("status", "life", "said"), [(401, 1, "it answered 401"), (302, 1, "it answered 302"), (200, "x", "ValueError")]
)
def test_no_token_is_one_sentence_without_the_secret(
    issuer: tuple[str, type[_Issuer]], status: int, life: Any, said: str
) -> None:
    """A refusal, an address to go to instead (which gets no secret), an answer that is none."""
    url, server = issuer
    server.status, server.life_s = status, life
    tokens = source(url).tokens()
    assert tokens is not None
    with pytest.raises(BrokerError, match=rf"no token came from LEADLINE_SASL_TOKEN_URL .*\({said}\)") as caught:
        tokens.token()
    assert "s3" not in str(caught.value)
    assert len(server.asked) == 1


def test_a_token_file_is_read_anew_and_says_when_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "token"
    body = base64.urlsafe_b64encode(json.dumps({"exp": 2_000_000_000}).encode()).decode().rstrip("=")
    tokens = Security.load({**TOKEN, "LEADLINE_SASL_TOKEN_FILE": str(file)}).tokens()
    assert tokens is not None
    file.write_text(f"head.{body}.signature\n")
    assert tokens.token() == (f"head.{body}.signature", 2_000_000_000.0)
    file.write_text("opaque")
    text, end = tokens.token()
    assert text == "opaque"
    assert 200 < end - time.time() <= 300
