"""Speed, measured by hand: ``python -m benchmarks``. Ratios within one run, because machines differ and are noisy."""
