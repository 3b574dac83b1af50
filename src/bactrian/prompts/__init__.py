"""What is said to a model: packs of templates, rendered strictly."""
