"""What to make: axes and a kind of job, as data. The built-in recipes are .toml files; a user's own is one more."""
