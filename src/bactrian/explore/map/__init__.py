"""Maps of texts: vectors, places in the plane, topics."""
