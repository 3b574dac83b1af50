"""Prompts: packs of templates, and the engine's own, rendered strictly."""
