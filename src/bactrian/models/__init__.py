"""Models: the protocol, the providers, the local model and wrappers."""
