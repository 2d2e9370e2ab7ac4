"""The policy in force, from a file that may change while the worker runs.

A new version holds from the next batch on. One that cannot be read keeps the old one in force: it is told loudly, once, and
counted. Reads only files and needs no stream engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from leadline.detection.policy import DEFAULT_POLICY, Policy
from leadline.detection.policy_file import parse_policy
from leadline.errors import SettingsError

__all__ = ["PolicySource", "read_policy"]

log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
_MAX_BYTES: Final = 1 << 20


def read_policy(file: str) -> Policy:
    """The policy in ``file``. Raises ``OSError``, or :class:`SettingsError` that says what is wrong with it and where."""
    return parse_policy(_text(file, _content(file)), file)


def _content(file: str) -> bytes:
    # A pipe would wait for a writer for ever, and the worker with it.
    if not stat.S_ISREG(Path(file).stat().st_mode):
        raise SettingsError(f"{file}: not a regular file; give the path of a policy file")
    with Path(file).open("rb") as stream:
        content = stream.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise SettingsError(f"{file}: larger than {_MAX_BYTES} bytes; that is no policy")
    return content


def _text(file: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: byte {error.start} is not valid UTF-8; write the policy as UTF-8 text") from None


class PolicySource:
    """Holds the policy in force. ``file`` empty: ``policy`` for ever.

    ``counts`` gets ``policy_changes`` and ``policy_rejected``. :meth:`poll` may block for as long as a file takes to read; call
    it off the event loop. Not thread safe; one caller at a time.
    """

    def __init__(self, policy: Policy = DEFAULT_POLICY, file: str = "", counts: Counter[str] | None = None) -> None:
        self.policy = policy
        """In force now."""
        self._file = file
        self._counts: Counter[str] = Counter() if counts is None else counts
        self._stamp: tuple[int, int, int] | None = None
        self._seen: bytes | None = None
        self._complaint = ""
        if file:
            self._seen = self._try_content()

    def _try_content(self) -> bytes | None:
        try:
            return _content(self._file)
        except (OSError, SettingsError):
            return None

    def poll(self) -> Policy | None:
        """Look at the file; the new policy if there is one, which is in force from now on. Never raises.

        Costs one ``stat`` while the file is as it was. A link that is swapped, as a mounted config map is, counts as a change.
        """
        if not self._file:
            return None
        try:
            status = os.stat(self._file)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return None
            content = _content(self._file)
            self._stamp = stamp
            if content == self._seen:
                self._complaint = ""
                return None
            self._seen = content
            policy = parse_policy(_text(self._file, content), self._file)
        except OSError as error:
            self._reject(f"{self._file} cannot be read: {(error.strerror or 'unknown error').lower()}")
            return None
        except SettingsError as error:
            self._reject(str(error))
            return None
        self._complaint = ""
        if policy == self.policy:
            return None
        old, self.policy = self.policy.version, policy
        self._counts["policy_changes"] += 1
        log.warning("policy %s is in force from now on, instead of %s", policy.version, old)
        return policy

    def _reject(self, why: str) -> None:
        if why == self._complaint:
            return
        self._complaint = why
        self._counts["policy_rejected"] += 1
        log.error("the policy that was in force stays (%s): %s", self.policy.version, why)

    async def watch(self) -> None:
        """Poll once a second, off the event loop, for ever."""
        while self._file:
            await asyncio.sleep(_EVERY_S)
            await _aside(self.poll)


async def _aside(call: Callable[[], object]) -> None:
    """Run ``call`` in a thread that keeps no process alive: a file system that hangs must not keep a worker from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            call()
        finally:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(end)

    threading.Thread(target=run, name="policy", daemon=True).start()
    await done
