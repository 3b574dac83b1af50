"""Reading back: how the agents of a run behaved, and how sure that is.

``from bactrian.analyze import open_run`` gives a run as data frames.
"""

from bactrian.analyze.frames import Run, open_run

__all__ = ["Run", "open_run"]
