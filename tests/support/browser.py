"""A Chromium, wherever it is installed. ``python -m tests.support.browser`` prints it, or what to do, and exits 1."""

from __future__ import annotations

import shutil
import sys

__all__ = ["find"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """The program that Playwright is to run: its own builds are not downloaded."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


if __name__ == "__main__":
    found = find()
    sys.stdout.write(f"{found or 'no browser: install chromium, on Debian and Ubuntu with: apt-get install chromium'}\n")
    sys.exit(found is None)
