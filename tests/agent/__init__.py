"""The SDK: ledger, guard, emitter, listener, session."""
