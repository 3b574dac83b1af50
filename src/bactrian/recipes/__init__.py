"""What to make: axes and a leaf, as data. The built-in recipes are .toml files; a user's own is one more."""
