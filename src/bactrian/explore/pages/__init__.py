"""The pages: one module, one template and one group of addresses each."""
