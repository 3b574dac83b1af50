"""Runs that several processes play: in a PostgreSQL database on any number of computers, or all on one computer."""
