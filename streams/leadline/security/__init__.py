"""Who may talk to whom: TLS and SASL for every client from one set of settings, and signatures on what they send.

Used by agents and monitor alike: it imports the contracts and nothing of either, and reads no environment of its own.
"""

from leadline.security.connection import Security
from leadline.security.secret import Secret

__all__ = ["Secret", "Security"]
