"""The inception protocol: its markers, its prompts as data, and the text of turns."""
