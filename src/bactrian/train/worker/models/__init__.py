"""Base models: where they come from, their tokenizers, and how they are loaded."""
