"""What is said and stored: frozen, typed, and without behaviour beyond views of itself."""
