"""Reading back: how the agents of a run behaved, and how sure that is."""
