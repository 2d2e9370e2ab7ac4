"""The same decisions on recorded or simulated sessions, without a broker: the driver, its clock, the report."""

from leadline.lab.lines import Line, read_lines
from leadline.lab.replay import ReplayDriver, Step, replay
from leadline.lab.report import report

__all__ = ["Line", "ReplayDriver", "Step", "read_lines", "replay", "report"]
