"""The names of the threads that the end of a command waits for."""

WRITER_THREAD = "bactrian-store"
"""Writes a run to the disk."""

CALL_THREAD = "bactrian-call"
"""How the names of the threads for blocking calls begin."""
