#!/opt/leadline/bin/python
"""Whether the worker in this container is live: 0, or 1 with a sentence; 0 without LEADLINE_HTTP_PORT, with nothing to ask."""

import os
import sys
import urllib.error
import urllib.request


def main() -> int:
    port = os.environ.get("LEADLINE_HTTP_PORT", "0")
    host = os.environ.get("LEADLINE_HTTP_HOST", "127.0.0.1")
    host = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
    if port == "0":
        return 0
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{host}:{port}/live", timeout=4) as answer:
            return 0 if answer.status == 200 else 1
    except (urllib.error.URLError, OSError) as error:
        print(f"the worker is not live: {error}", file=sys.stderr)  # noqa: T201 - a script
        return 1


if __name__ == "__main__":
    sys.exit(main())
