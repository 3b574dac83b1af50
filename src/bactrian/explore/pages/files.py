"""The files that an embodied agent made: pictures are shown, anything else is downloaded."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from bactrian.explore.kept_files import list_kept_files
from bactrian.explore.pages.conversation import find_session
from bactrian.explore.rendering import has_agreed


async def send_file(request: Request) -> Response:
    """Send one file of a session. Its name is looked up in the folder, so that no path leads out of it."""
    one, session = await find_session(request)
    if session.mark and not has_agreed(request):
        raise HTTPException(403)
    name = request.path_params["name"]
    files = await asyncio.to_thread(list_kept_files, one.run, session.id)
    found = next((file for file in files if file.name == name), None)
    if found is None:
        raise HTTPException(404, f"The conversation has no file {name!r}.")
    # Opened as a page of its own, a picture of lines (.svg) could run scripts: only ``img`` shows it.
    return FileResponse(
        found.path,
        media_type=found.picture or "application/octet-stream",
        filename=found.name,
        content_disposition_type="attachment",
    )


ROUTES = (Route("/c/{data}/{id}/files/{name}", send_file),)
