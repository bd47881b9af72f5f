"""The server behind the page: bound to this machine alone, and nothing is fetched from elsewhere."""

from __future__ import annotations

import os
from contextlib import suppress

from ninegrid.play.room import STATE, Room
from ninegrid.play.settings import PlaySettings
from ninegrid.ports import HOST, require_free
from ninegrid.progress import say
from ninegrid.tasks.tictactoe import TicTacToe

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="6" '
    'fill="#0072b2"/><path d="M12 6v20M20 6v20M6 12h20M6 20h20" stroke="#fff" stroke-width="2.5"/></svg>'
)


def serve(settings: PlaySettings, task: TicTacToe, port: int) -> None:
    """Serve the page until the process is told to end.

    Raises:
        NinegridError: the port is taken.
    """
    require_free(port, f"make play PORT={port + 1 if 0 < port < 65535 else 8081}")
    # The library reads this when it is imported; it would leave a folder where it was started.
    os.environ["NICEGUI_STORAGE_PATH"] = str(settings.paths.state_folder(STATE) / "nicegui")
    os.environ.setdefault("MATPLOTLIB", "false")  # and would import it, for plots that are not drawn here
    from nicegui import app, background_tasks, ui

    from ninegrid.play.page import draw
    from ninegrid.play.tabs import Tabs

    room = Room(settings, task)
    tabs = Tabs(room)

    @ui.page("/")
    async def index() -> None:
        await draw(room, tabs)

    app.on_startup(lambda: background_tasks.create(room.open(), name="open the room"))
    app.on_shutdown(room.close)
    say(f"play: http://{HOST}:{port} (Ctrl-C ends it)")
    with suppress(KeyboardInterrupt):  # the end that was announced
        ui.run(
            host=HOST,
            port=port,
            title="ninegrid: play",
            favicon=ICON,
            dark=None,
            language="en-US",
            tailwind=False,
            reload=False,
            show=False,
            show_welcome_message=False,
            # A browser that was late finds its page; with less it would have to load it again.
            reconnect_timeout=20.0,
            timeout_graceful_shutdown=1,
        )
