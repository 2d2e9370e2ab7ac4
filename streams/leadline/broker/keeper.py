"""The broker's keeper: a process between the owner and the broker, so that the broker never outlives its owner.

Run by path as a script, never imported; needs nothing but the standard library. It starts the command, and ends it
when the pipe on its standard input closes (the owner stopped it, or died), when its parent changes (the owner died
while some fork of it still held the pipe) or on SIGTERM. The broker itself is told by the kernel to die with the
keeper (Linux), in case the keeper is killed outright.

    keeper.py OWNER_PID GRACE_SECONDS SCRATCH RELAY_PORT COMMAND...

RELAY_PORT is -, or the port (0: a free one) on which a relay (``longpoll.py``) takes the broker's clients; it is told in place of
the broker's own, in the line in which the broker tells it.

The keeper first writes ``broker pid N`` to standard output, which the broker shares, and exits with the
broker's code, or 128 + the signal that ended the broker. SCRATCH is a folder that nobody needs once the owner is gone or
has stopped the broker; it stays when the broker ended by itself, because the owner then reads the output in it.
"""

from __future__ import annotations

import ctypes
import os
import re
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_LAST_WORDS_S = 2.0
_HOST = "127.0.0.1"
_LISTENING = re.compile(rb"^(\s+kafka\s+127\.0\.0\.1:)(\d+)\s*$")


def _die_with_keeper() -> None:
    """Runs in the broker's process before exec; the keeper has one thread, so this is safe here."""
    if sys.platform == "linux":
        keeper = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)


def _owner_gone(owner: int) -> bool:
    if os.getppid() != owner:
        return True
    readable, _, _ = select.select([0], [], [], _POLL_S)
    return bool(readable) and os.read(0, 1) == b""


def _stop(broker: subprocess.Popen[bytes], grace: float) -> None:
    if grace > 0:
        broker.terminate()
        try:
            broker.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        else:
            return
    broker.kill()
    broker.wait()


def _relay(broker: subprocess.Popen[bytes], listening: socket.socket) -> None:
    """Pass the broker's output on, and relay to the port that it tells."""
    assert broker.stdout is not None
    for line in broker.stdout:
        found = _LISTENING.match(line)
        if found:
            serve = runpy.run_path(str(Path(__file__).with_name("longpoll.py")))["serve"]
            threading.Thread(target=serve, args=(listening, int(found[2])), daemon=True).start()
            line = found[1] + b"%d\n" % listening.getsockname()[1]
        os.write(1, line)


def main(argv: list[str]) -> int:
    """Keep the broker until one of the two ends. Blocks; returns the exit code."""
    owner, grace, scratch, relay, command = int(argv[1]), float(argv[2]), argv[3], argv[4], argv[5:]

    def on_term(_signum: int, _frame: FrameType | None) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, on_term)
    listening = None
    if relay != "-":
        try:
            listening = socket.create_server((_HOST, int(relay)), backlog=128)
        except OSError as error:
            os.write(1, f"relay: {_HOST}:{relay} already in use? {error}\n".encode())
            return 1
    broker = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if listening else None, preexec_fn=_die_with_keeper
    )
    relaying = None
    try:
        os.write(1, b"broker pid %d\n" % broker.pid)
        if listening is not None:
            relaying = threading.Thread(target=_relay, args=(broker, listening), daemon=True)
            relaying.start()
        while broker.poll() is None and not _owner_gone(owner):
            pass
    except SystemExit:
        pass
    finally:
        if broker.poll() is None:
            _stop(broker, grace)
            shutil.rmtree(scratch, ignore_errors=True)
    code = broker.wait()
    if relaying is not None:
        # What it said last is why it ended. A child of it may hold its output open, so this does not wait for ever.
        relaying.join(_LAST_WORDS_S)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
