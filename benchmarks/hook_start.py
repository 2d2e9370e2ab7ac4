"""How long ``leadline hook claude-code`` takes to start: ``python -m benchmarks.hook_start``.

Prints medians of wall and processor time, and how they compare with a bare Python's. ``prompt``: a hook with nothing due, as at
each prompt. ``compaction``: one that reads a transcript and speaks to a broker that is not there, without its waits.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.agent.adapters.claude_code.recording import compacted

RUNS = 7
# As installed: modules are compiled once, whatever this environment says.
_ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measured(arguments: list[str], given: str) -> tuple[float, float]:
    """Median wall and processor time in ms."""
    walls, used = [], []
    subprocess.run([sys.executable, *arguments], input=given.encode(), stdout=subprocess.DEVNULL, check=True, env=_ENVIRON)
    for _ in range(RUNS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *arguments], input=given.encode(), stdout=subprocess.DEVNULL, check=True, env=_ENVIRON)
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(walls) * 1000, statistics.median(used) * 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        transcript = Path(folder) / "t.jsonl"
        transcript.write_text(compacted(3).text)
        given = {"session_id": "cc-1", "transcript_path": str(transcript)}
        hook = ["-m", "leadline", "hook", "claude-code", "--state", folder, "--bootstrap", "127.0.0.1:1", "--wait", "0"]
        cases = {
            "bare Python": (["-c", "pass"], ""),
            "prompt": (hook, json.dumps({**given, "hook_event_name": "UserPromptSubmit"})),
            "compaction": (hook, json.dumps({**given, "hook_event_name": "PreCompact", "trigger": "auto"})),
        }
        base = 0.0
        sys.stdout.write(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {RUNS} runs each\n")
        for name, (arguments, said) in cases.items():
            wall, used = measured(arguments, said)
            base = base or used
            sys.stdout.write(f"{name:<12} wall {wall:7.1f} ms   processor {used:7.1f} ms   {used / base:5.1f} x bare\n")


if __name__ == "__main__":
    main()
