"""The play page, end to end: a real server, a real browser without a window, tiny models that really reply.

The untrained model of the small loop says square 5 to whatever it is asked, which is illegal the second time.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ninegrid.evaluation.episodes import read_episodes
from ninegrid.tasks.tictactoe import TicTacToe
from tests.conftest import ROOT, made_once
from tests.playing import CENTRE, make_loop, overrides
from tests.servers import free_port, is_served

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

PATIENCE = 60_000
"""Milliseconds that anything on the page may take; nothing is measured here."""


class Server:
    """The page's server in a process of its own, which can be killed and started again at the same port."""

    def __init__(self, loop: Path, folder: Path) -> None:
        self.port, self.state, self._log = free_port(), folder / "state", folder / "log"
        self._settings = [*overrides(loop), f"paths.state={self.state}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        command = [sys.executable, "-m", "ninegrid.play", "--port", str(self.port), *self._settings]
        # The UI library takes another way where it finds itself in a test.
        environment = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        for _ in range(600):
            assert self._process.poll() is None, f"the server has ended: {self._log.read_text()}"
            if is_served(self.url):
                return
            time.sleep(0.1)
        pytest.fail(f"the server never answered: {self._log.read_text()}")

    def end(self, how: signal.Signals = signal.SIGTERM) -> str:
        """End the process and return what it has printed."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=60)
        return self._log.read_text()


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "played_loop", make_loop)


@pytest.fixture(scope="module")
def server(loop: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    served = Server(loop, tmp_path_factory.mktemp("play"))
    served.start()
    yield served
    # The web framework complains of requests that a browser gives up; nothing may go wrong in this project.
    assert "ninegrid/play" not in served.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Tab:
    """A page in a browser of its own, with all that went wrong in it."""

    def __init__(self, browser: Any, server: Server, width: int) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 850}, accept_downloads=True)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda m: m.type == "error" and self.errors.append(m.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda r: r.url.startswith("http") and self.hosts.add(r.url.split("/")[2]))
        self.page.goto(server.url)
        self.page.locator(".square").first.wait_for()

    def choose(self, *names: str) -> None:
        for name in names:
            self.page.get_by_role("button", name=name, exact=True).click()

    def settled(self, game: int = 0) -> str:
        """Wait until no reply is being waited for, and return where the game stands."""
        ready = "g => document.querySelectorAll('.game')[g]?.matches(':not(.asking)')"
        self.page.wait_for_function(ready, arg=game)
        return str(self.page.locator(".game").nth(game).locator(".status").inner_text())

    def board(self, game: int = 0) -> str:
        marks = self.page.locator(".game").nth(game).locator(".mark").all_inner_texts()
        return "".join(mark or "." for mark in marks)

    def square(self, number: int, game: int = 0) -> Any:
        return self.page.locator(".game").nth(game).locator(f"[data-square='{number}']")

    def move(self, number: int, game: int = 0) -> None:
        """Take a square; a click that met a board about to be drawn anew is made again."""
        mark = self.square(number, game).locator(".mark")
        for _ in range(20):
            self.square(number, game).click()
            with contextlib.suppress(AssertionError):
                playwright.expect(mark).to_have_text("O", timeout=PATIENCE / 20)
                return
        pytest.fail(
            f"square {number} could not be taken: {self.page.locator('.game').nth(game).inner_text()}"
        )

    def begin(self, opponent: str, first: str) -> None:
        self.choose(opponent, first, "New game")
        start = "." * 9 if first == "You (O)" else None
        self.settled()
        if start is not None:
            playwright.expect(self.page.locator(".status").first).to_have_text("Your turn: you are O.")


@pytest.fixture
def open_tab(browser: Any, server: Server) -> Iterator[Any]:
    tabs = []

    def opened(width: int = 1280) -> Tab:
        tabs.append(Tab(browser, server, width))
        return tabs[-1]

    yield opened
    for tab in tabs:
        assert tab.errors == []
        assert tab.hosts == {f"127.0.0.1:{server.port}"}
        tab.context.close()


OVER = ("You win.", "A draw.", "wins.")


def test_a_whole_game_by_mouse_against_the_trained_policy(open_tab: Any) -> None:
    """It replies legally or not; where it does not, a random legal move is played for it."""
    tab = open_tab()
    tab.begin("Trained", "It (X)")
    for _ in range(20):
        status = tab.settled()
        if status.endswith(OVER):
            break
        if "made no move" in status:
            tab.page.get_by_role("button", name="Random legal move instead").click()
            playwright.expect(tab.page.locator(".status").first).not_to_have_text(status)
            continue
        free = tab.board().index(".") + 1
        tab.move(free)
    assert tab.settled().endswith(OVER)
    assert abs(tab.board().count("X") - tab.board().count("O")) <= 1


def test_a_whole_game_by_keyboard_against_perfect_play(open_tab: Any) -> None:
    tab = open_tab()
    tab.begin("Perfect", "You (O)")
    for _ in range(9):
        if tab.settled().endswith(OVER):
            break
        free = tab.board().index(".") + 1
        tab.page.keyboard.press(str(free))
        playwright.expect(tab.square(free).locator(".mark")).to_have_text("O")
    assert tab.settled() in ("The perfect player wins.", "A draw.")
    tab.page.keyboard.press("n")
    playwright.expect(tab.page.locator(".status").first).to_have_text("Your turn: you are O.")
    assert tab.board() == "." * 9


def test_an_illegal_reply_is_shown_as_what_it_is_and_can_be_retried(open_tab: Any, loop: Path) -> None:
    tab = open_tab()
    tab.begin("Untrained", "You (O)")
    tab.move(5)
    failure = tab.page.locator(".failure")
    playwright.expect(failure).to_contain_text("No move: occupied.")
    assert tab.board() == "....O...." and "refused" in tab.square(5).get_attribute("class")
    answer = tab.page.locator(".answer")
    assert answer.locator("dd pre").first.inner_text() == CENTRE
    playwright.expect(answer).to_contain_text("choose_square(square=5)")
    playwright.expect(answer).to_contain_text("Best: 1, 3, 7 or 9.")
    assert tab.square(5).locator(".share").inner_text() in (">99%", "100%")
    tab.choose("Ask again")
    playwright.expect(answer).to_contain_text("attempt 2")
    playwright.expect(answer).to_contain_text("sampled at temperature 1")
    playwright.expect(failure).to_be_visible()
    tab.choose("Random legal move instead")
    playwright.expect(failure).to_be_hidden()
    assert tab.settled() == "Your turn: you are O." and tab.board().count("X") == 1
    tab.page.get_by_text("Exact prompt").first.click()
    prompt = tab.page.locator(".game .prompt pre").inner_text()
    assert prompt.startswith("<|im_start|>system\n") and prompt.rstrip().endswith("assistant")
    playwright.expect(tab.page.locator(".check")).to_contain_text("Verified")
    playwright.expect(tab.page.locator(".note", has_text="one O more")).to_be_visible()


def test_both_policies_play_games_of_their_own(open_tab: Any) -> None:
    tab = open_tab()
    tab.begin("Both", "You (O)")
    tab.move(1, game=1)
    tab.page.keyboard.press("b")
    tab.page.keyboard.press("2")
    playwright.expect(tab.square(2, game=0).locator(".mark")).to_have_text("O")
    assert tab.board(0)[:2] == ".O" and tab.board(1)[0] == "O"
    assert "active" in tab.page.locator(".game").first.get_attribute("class")


def test_recorded_replies_are_stepped_through_and_played_on(open_tab: Any) -> None:
    tab = open_tab()
    playwright.expect(tab.page.locator(".seats")).to_have_text("Trained: readyUntrained: ready")
    tab.choose("Recorded replies")
    playwright.expect(tab.page.locator(".steps")).to_be_visible()  # the other panel has a "Greedy" too
    tab.choose("Greedy")
    playwright.expect(tab.page.locator(".steps")).to_contain_text("1 of 16")
    tab.page.keyboard.press("ArrowRight")
    playwright.expect(tab.page.locator(".steps")).to_contain_text("2 of 16")
    tab.choose("Next flip")
    playwright.expect(tab.page.locator(".drawing")).to_contain_text("a flip")
    playwright.expect(tab.page.locator(".drawing svg")).to_be_visible()
    replies = tab.page.locator(".reply pre").all_inner_texts()
    assert len(replies) == 2 and replies[0] == CENTRE != replies[1]
    tab.page.get_by_text("Exact prompt of this board").click()
    playwright.expect(tab.page.locator(".record .sha")).to_contain_text("one of the 16 prompts")
    tab.choose("Play on from here")
    tab.settled(0)
    tab.settled(1)
    assert tab.page.locator(".answer dd pre").all_inner_texts()[0] == CENTRE


def test_the_tally_is_exported_as_episodes(open_tab: Any, server: Server, tmp_path: Path) -> None:
    tab = open_tab()
    tab.begin("Untrained", "You (O)")
    tab.move(1)
    playwright.expect(tab.square(5).locator(".mark")).to_have_text("X")
    with tab.page.expect_download() as download:
        tab.choose("Export as episodes")
    download.value.save_as(tmp_path / "episodes.jsonl")
    episodes = read_episodes(tmp_path / "episodes.jsonl", TicTacToe.outcomes)
    kept = (server.state / "play" / "episodes.jsonl").read_text().splitlines()
    assert sorted((tmp_path / "episodes.jsonl").read_text().splitlines()) == sorted(kept)
    shown = tab.page.locator(".bar-name").all_inner_texts()
    assert sum(int(name.split(", ")[1]) for name in shown) == len(episodes) > 0


def test_on_a_phone_nothing_is_wider_than_the_screen(open_tab: Any) -> None:
    tab = open_tab(390)
    wider = "document.documentElement.scrollWidth - innerWidth"
    tab.begin("Both", "It (X)")
    tab.settled(1)
    assert tab.page.evaluate(wider) <= 0
    for details in tab.page.locator("summary:visible").all():
        details.click()
    assert tab.page.evaluate(wider) <= 0
    assert tab.square(1).bounding_box()["width"] > 44
    tab.choose("Recorded replies")
    tab.page.get_by_role("button", name=re.compile("^Flips")).click()
    tab.page.get_by_role("button", name="Next", exact=True).click()
    assert tab.page.evaluate(wider) <= 0


def test_games_are_kept_when_the_server_is_gone_and_back(browser: Any, server: Server) -> None:
    tab = Tab(browser, server, 1280)
    tab.begin("Random", "You (O)")
    tab.move(1)
    assert tab.settled() == "Your turn: you are O."
    other = Tab(browser, server, 1280)
    other.begin("Random", "It (X)")
    boards = [tab.board(), other.board()]
    assert tab.errors == other.errors == []
    server.end(signal.SIGKILL)
    playwright.expect(tab.page.get_by_text("Connection lost")).to_be_visible()
    server.start()
    for each, board in zip((tab, other), boards, strict=True):
        playwright.expect(each.page.get_by_text("Connection lost")).to_be_hidden()
        for mark, square in zip(board, range(1, 10), strict=True):  # the page is drawn anew meanwhile
            playwright.expect(each.square(square).locator(".mark")).to_have_text(mark.strip("."))
    each_errors = [error for error in tab.errors if "ERR_CONNECTION_REFUSED" not in error]
    free = tab.board().index(".") + 1
    tab.page.keyboard.press(str(free))
    playwright.expect(tab.square(free).locator(".mark")).to_have_text("O")
    assert [error for error in each_errors if "WebSocket" not in error] == []
    tab.context.close()
    other.context.close()
