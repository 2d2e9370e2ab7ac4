"""Agents of real frameworks: one file a framework, each an extra of the same name, none imported by another.

``conversation`` is what they share: it turns a framework's list of messages before and after a compaction into the ledger's
terms. ``conversations`` keeps one for each conversation of a process.
"""
