"""A seeded simulator of context compaction, and of what an agent would report of it. It knows no published outcome."""
