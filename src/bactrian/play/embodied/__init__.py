"""The embodied agent (paper, appendix N): it acts by Python that it writes, in a sandbox."""
