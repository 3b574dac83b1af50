"""The public Python API. Its names are in :mod:`bactrian`; the command line and the explorer are its clients."""
