"""Sandboxes in containers and on other computers, reached through the standard streams of a command."""
