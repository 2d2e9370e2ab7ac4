"""The SDK: what an agent imports to report its compaction rounds and to obey the monitor.

Nothing in it slows down, blocks or crashes the agent: events are queued and sent by a thread, commands are recorded by
another and acted on where the agent asks.
"""

from leadline.agent.asynchronous import AsyncSession
from leadline.agent.client import Client, connect
from leadline.agent.control import State
from leadline.agent.coverage import uncovered
from leadline.agent.emitter import Emitted, Emitter
from leadline.agent.facts import Fact, assess
from leadline.agent.grounded import EvictionPlan, GroundedEviction
from leadline.agent.guard import check_inversion, check_recall
from leadline.agent.ledger import Ledger, LedgerError
from leadline.agent.listener import CommandListener
from leadline.agent.memory import MemoryTransport
from leadline.agent.presence import Monitor, Verdict
from leadline.agent.rehydrate import Rehydration
from leadline.agent.session import Session
from leadline.agent.signals import Signals
from leadline.agent.spool import Spool

__all__ = [
    "AsyncSession",
    "Client",
    "CommandListener",
    "Emitted",
    "Emitter",
    "EvictionPlan",
    "Fact",
    "GroundedEviction",
    "Ledger",
    "LedgerError",
    "MemoryTransport",
    "Monitor",
    "Rehydration",
    "Session",
    "Signals",
    "Spool",
    "State",
    "Verdict",
    "assess",
    "check_inversion",
    "check_recall",
    "connect",
    "uncovered",
]
