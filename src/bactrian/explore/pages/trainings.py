"""A training: the curves of its stages, and the numbers behind them."""

from __future__ import annotations

import asyncio
import csv
from io import StringIO
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bactrian.explore.rendering import get_explorer, render_page
from bactrian.explore.trainings import draw_plots, read_stages

_COLUMNS = ("stage", "step", "loss", "held_out", "tokens_per_second", "learning_rate")


async def show_training(request: Request) -> Response:
    """Show the curves of a training, finished or not."""
    root = _find_training(request)
    stages = await asyncio.to_thread(read_stages, root)
    return render_page(
        request,
        "training.html",
        name=request.path_params["name"],
        root=root,
        stages=stages,
        plots=draw_plots(stages),
    )


async def write_csv(request: Request) -> Response:
    """Return every logged step as a table."""
    table = StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for stage in await asyncio.to_thread(read_stages, _find_training(request)):
        writer.writerows([getattr(row, column) for column in _COLUMNS] for row in stage.rows)
    return PlainTextResponse(table.getvalue(), media_type="text/csv")


def _find_training(request: Request) -> Path:
    name = request.path_params["name"]
    trainings = get_explorer(request).library.trainings
    if name not in trainings:
        raise HTTPException(404, f"There is no training {name!r}.")
    return trainings[name]


ROUTES = (Route("/training/{name}", show_training), Route("/training/{name}/steps.csv", write_csv))
