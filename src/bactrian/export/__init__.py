"""Handing over: a run becomes files that other tools read, one file of this folder for each format."""
