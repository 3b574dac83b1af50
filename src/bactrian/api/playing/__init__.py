"""Sessions of other kinds than a role-play: societies, and embodied agents alone."""
