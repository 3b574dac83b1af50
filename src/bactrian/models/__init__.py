"""Who answers: one protocol, one file per provider, and wrappers around it."""
