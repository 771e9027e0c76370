"""The dashboard in a real browser: ``make test-looking``.

Screenshots are written into the folder that ``ZMQDATA_SCREENSHOTS`` names, if it is
set.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.looking.browser import LOOKING, chromium, opened, violations
from tests.statuses import HOSTILE, answer, job, operation, reader, status, task, worker
from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.config.dashboard import DashboardSettings
from zmqdata.dashboard.report import report_of
from zmqdata.dashboard.server import DashboardServer
from zmqdata.dashboard.view import view_of
from zmqdata.dashboard.watching import StatusWatch
from zmqdata.messages import EventStatus, ServiceStatus

pytestmark = LOOKING
ANYWHERE = "tcp://127.0.0.1:1"
WATCHES_JANK = """() => {
  window.long = []; window.frames = [];
  new PerformanceObserver((list) => list.getEntries().forEach((one) => window.long.push(one.duration)))
    .observe({ entryTypes: ["longtask"] });
  let last = performance.now();
  const frame = (now) => { window.frames.push(now - last); last = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""

HAS_COLOUR = """([swatch, name]) => {
  const colour = getComputedStyle(document.querySelector(swatch)).backgroundColor.match(/[0-9]+/g).map(Number);
  const canvas = document.querySelector(name);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4) if (colour.every((one, place) => data[at + place] === one)) return true;
  return false;
}"""


class Made:
    """A dispatcher whose status a test changes while viewers look."""

    def __init__(self) -> None:
        self.status: ServiceStatus | None = status(3)
        self.turn = 0

    def ask(self) -> dict[str, Any]:
        self.turn += 1
        return {} if self.status is None else answer(self.status)


def everything() -> ServiceStatus:
    """Return a status in which each part of the page has something to show."""
    readers = [reader(0, 0.42), reader(1, 0.4), reader(2, 0.0, 30.0)]
    return status(
        jobs=[
            job(readers=readers, poisoned=["element 7 of task 1: SIGSEGV in map(decode)"]),
            job(HOSTILE, 2, verdict="COMPUTE-BOUND", advice=HOSTILE, readers=[]),
            job("links", 3, verdict="LINK-BOUND", advice="The link is busy.", finished=False),
            job("ranks", 4, verdict="STRAGGLER", advice="Consumer 2 is slow."),
            job("saved", 5, finished=True),
            job("broken", 6, failure="ValueError in map(decode)"),
            job("new", 7, verdict="", advice="", readers=[], clients=0),
        ],
        hosts=[worker(0), worker(1, connected=False), worker(2)],
        tasks=[task(0), task(1), task(2, state="stalled")],
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    with chromium() as made:
        yield made


@pytest.fixture
def made() -> Made:
    """A dispatcher of three workers."""
    return Made()


@pytest.fixture
def link(made: Made) -> Iterator[str]:
    """The address of its page."""
    watch = StatusWatch(made.ask, threading.Event(), every=0.2)
    with DashboardServer(DashboardSettings(ANYWHERE, port=0), watch) as server:
        yield server.link


def keep(page: Any, name: str) -> None:
    """Write a screenshot, if a folder for it is named."""
    folder = os.environ.get("ZMQDATA_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize("width", [360, 1280, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(browser: Any, made: Made, link: str, width: int, scheme: str) -> None:
    """Axe finds no violation, and nothing is wider than the window: phone, desk and
    wall, light and dark, with every part of the page filled.
    """
    made.status = everything()
    with opened(browser, link, width, color_scheme=scheme) as page:
        page.wait_for_selector("#job-1 tbody tr")
        page.click("summary:has-text('Workers as a table')")
        page.wait_for_selector("#workers-details tbody tr")
        keep(page, f"everything-{width}-{scheme}")
        assert violations(page) == []
        assert page.evaluate("() => document.documentElement.scrollWidth") == width


def texts(found: Any) -> Iterator[str]:
    """Yield the texts of a view that the body of the page shows."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict):
        for key, value in found.items():
            yield from () if key in ("title", "kind") else texts(value)
    elif isinstance(found, list):
        for value in found:
            yield from texts(value)


def test_each_text_of_the_view_is_on_the_page(browser: Any, made: Made, link: str) -> None:
    """All figures, names and sentences that the view has are texts of the page."""
    made.status = everything()
    with opened(browser, link) as page:
        page.wait_for_function("() => document.querySelectorAll('.job').length === 7")
        shown = page.text_content("body")
    found = set(texts(view_of(made.status, 0.0)))
    assert len(found) > 100
    assert [text for text in found if text not in shown] == []


def test_the_verdict_comes_first(browser: Any, link: str) -> None:
    """The first thing in the page is the verdict with its advice, word for word."""
    with opened(browser, link) as page:
        page.wait_for_selector("#verdicts .word")
        text = page.inner_text("#verdicts li")
        assert text == f"train INPUT-BOUND {job().advice}"
        assert page.title() == "INPUT-BOUND - train - zmqdata"


def test_a_new_verdict_is_read_out_once(browser: Any, made: Made, link: str) -> None:
    """The live region changes with the word, and not with each number."""
    with opened(browser, link) as page:
        page.wait_for_function("() => document.getElementById('announce').textContent")
        page.evaluate("""() => { window.said = [];
          new MutationObserver(() => window.said.push(document.getElementById("announce").textContent))
            .observe(document.getElementById("announce"), {childList: true, characterData: true, subtree: true}); }""")
        for number in range(3):
            made.status = status(3, [job(advice=f"map(f) takes {90 + number} % of the time.")])
            page.wait_for_function(
                f"() => document.getElementById('verdicts').textContent.includes('{90 + number} %')"
            )
        made.status = status(3, [job(verdict="COMPUTE-BOUND", advice="It keeps up.")])
        page.wait_for_function("() => window.said.length > 0")
        assert page.evaluate("() => window.said") == ["train: COMPUTE-BOUND"]


def test_hostile_names_are_texts(browser: Any, made: Made, link: str) -> None:
    """Names of jobs and nodes that look like HTML are shown as they are, and run
    nothing.
    """
    hostile = job(HOSTILE, advice=HOSTILE, operations=[operation("", HOSTILE, 1.0)])
    events = [EventStatus(time=1.0, level=HOSTILE, text=HOSTILE)]
    made.status = status(1, [hostile], events=events)
    dialogs: list[str] = []
    with opened(browser, link) as page:
        page.on("dialog", lambda one: (dialogs.append(one.message), one.dismiss()))
        page.wait_for_selector("#job-1 tbody tr")
        assert page.inner_text("#job-1 h2") == HOSTILE
        assert HOSTILE in page.inner_text("#job-1 tbody")
        assert HOSTILE in page.inner_text("#events tbody")
        assert page.query_selector("main img") is None
        assert page.evaluate("() => document.scripts.length") == 2
    assert dialogs == []


def test_the_keyboard_alone_suffices(browser: Any, made: Made, link: str) -> None:
    """Each control is reached by the Tab key, shows its focus, and works by keys."""
    with opened(browser, link) as page:
        page.wait_for_selector("#job-1 tbody tr")
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("""() => { const one = document.activeElement, style = getComputedStyle(one);
                  return [one.id || one.className || one.tagName, one.matches(":focus-visible") && style.outlineStyle !== "none"]; }""")
            )
            if [name for name, _ in reached].count("pause") == 1 and reached[-1][0] == "pause":
                page.keyboard.press("Space")
        names = [name for name, _ in reached]
        assert names[:4] == ["skip", "pause", "range", "theme"]
        assert {"SUMMARY", "scroll events"} <= set(names)
        assert all(shown for name, shown in reached if name != "BODY")
        assert page.get_attribute("#pause", "aria-pressed") == "true"
        seen = page.inner_text("#place")
        asked = made.turn
        page.wait_for_timeout(700)
        assert made.turn > asked
        assert page.inner_text("#place") == seen
        page.focus("#theme")
        page.keyboard.press("End")
        assert (
            page.evaluate("() => getComputedStyle(document.documentElement).colorScheme") == "dark"
        )
        page.reload()
        assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"


def test_a_silent_dispatcher_is_told_and_its_last_state_stays(
    browser: Any, made: Made, link: str
) -> None:
    """The page says that it shows what was known."""
    with opened(browser, link) as page:
        page.wait_for_selector("#job-1 tbody tr")
        made.status = None
        page.wait_for_selector("#trouble:not([hidden])")
        assert "This page shows what was known at" in page.inner_text("#trouble")
        assert page.inner_text("#job-1 h2") == "train"
        made.status = status(3)
        page.wait_for_selector("#trouble", state="hidden")


def test_an_ended_process_is_told(browser: Any, made: Made) -> None:
    """When the process of the page ends, an open window says so."""
    watch = StatusWatch(made.ask, threading.Event(), every=0.2)
    server = DashboardServer(DashboardSettings(ANYWHERE, port=0), watch)
    server.start()
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.link)
    page.wait_for_selector("#job-1 tbody tr")
    server.stop()
    page.wait_for_selector("#trouble:not([hidden])")
    assert "does not answer" in page.inner_text("#trouble")
    context.close()


def test_the_link_with_a_token_opens_the_page(browser: Any, made: Made) -> None:
    """After the link, the address has no token, and the stream is permitted."""
    watch = StatusWatch(made.ask, threading.Event(), every=0.2)
    settings = DashboardSettings(ANYWHERE, host="0.0.0.0", port=0, names=("localhost",))
    with DashboardServer(settings, watch) as server:
        token = server.link.partition("?")[2]
        port = server.link.rpartition("/")[0].rpartition(":")[2]
        with opened(browser, f"http://localhost:{port}/?{token}") as page:
            page.wait_for_selector("#job-1 tbody tr")
            assert page.url == f"http://localhost:{port}/"
            assert page.evaluate("() => document.cookie") == ""


def test_a_thousand_workers_without_jank(browser: Any, made: Made, link: str) -> None:
    """The page keeps drawing while 1,000 workers and 200 loops change four times a
    second: 95 % of frames come within 50 ms, and at most 3 of its tasks take 100 ms.
    """
    readers = [reader(number, 0.1 + 0.001 * number) for number in range(200)]
    made.status = status(1_000, [job(readers=readers), job("other", 2)])
    with opened(browser, link) as page:
        page.wait_for_selector("#job-1 tbody tr")
        page.wait_for_timeout(1_500)
        page.evaluate(WATCHES_JANK)
        for turn in range(20):
            made.status = status(
                jobs=[job(readers=readers[turn:] + readers[:turn], delivered=turn)],
                hosts=[
                    worker(number, making_share=(0.37 * number + 0.05 * turn) % 1)
                    for number in range(1_000)
                ],
            )
            page.wait_for_timeout(250)
        long, frames = page.evaluate("() => [window.long, window.frames]")
        keep(page, "a-thousand-workers")
        assert "1,000 workers" in page.inner_text("#workers-summary")
        assert page.evaluate("() => document.querySelectorAll('*').length") < 5_000
        print(f"long tasks: {long}; frames: {len(frames)}, longest {max(frames):.0f} ms")
        assert len([one for one in long if one > 100]) <= 3, long
        assert sorted(frames)[int(0.95 * len(frames))] < 50


def test_the_bands_of_a_thousand_workers_fit_a_phone(browser: Any, made: Made, link: str) -> None:
    """They take less than two screens."""
    made.status = status(1_000)
    with opened(browser, link, 360) as page:
        page.wait_for_selector("#job-1 tbody tr")
        assert 0 < page.evaluate("() => document.getElementById('bands').clientHeight") < 1_600


@pytest.mark.parametrize(
    ("workers", "x", "y", "place"), [(2, 300, 25, 1), (1_000, 150, 2, 1), (1_000, 20, 7, 11)]
)
def test_a_band_names_its_worker(
    browser: Any, made: Made, link: str, workers: int, x: int, y: int, place: int
) -> None:
    """The pointer over a band shows what its worker does, in one column or in many."""
    made.status = status(workers)
    address = view_of(made.status, 0.0)["workers"]["address"][place]
    with opened(browser, link) as page:
        page.wait_for_selector("#job-1 tbody tr")
        page.hover("#bands", position={"x": x, "y": y})
        assert page.inner_text("#hint") == (
            f"{address}: connected, makes 90 %, waits for readers 8 %, for splits 2 %, "
            "9.5 elements/s"
        )


def test_plots_show_all_of_the_time(browser: Any, link: str) -> None:
    """The plots can show everything since the beginning, and are drawn again in other
    colours.
    """
    with opened(browser, link) as page:
        page.wait_for_selector("#job-1 .plot canvas")
        page.select_option("#range", "whole")
        page.select_option("#theme", "dark")
        page.wait_for_timeout(500)
        assert len(page.query_selector_all("#job-1 .plot canvas")) == 2


def test_a_report_opens_from_a_file(browser: Any, tmp_path: Path) -> None:
    """The report shows the same page without any server, is accessible, and is drawn
    again in other colours.
    """
    watch = StatusWatch(lambda: answer(everything()), threading.Event())
    for _ in range(5):
        watch.poll()
    path = tmp_path / "report.html"
    path.write_text(report_of(watch.whole()))
    with opened(browser, path.as_uri()) as page:
        page.wait_for_selector("#job-1 tbody tr")
        assert "report of" in page.inner_text("#place")
        assert page.is_hidden("#pause")
        assert page.query_selector("#job-1 .plot canvas") is not None
        assert violations(page) == []
        keep(page, "report")
        for theme in ("light", "dark"):
            page.select_option("#theme", theme)
            for swatch, canvas in (
                ("#job-1 .shares .waits", "#job-1 .shares canvas"),
                ("#legend .making", "#bands"),
            ):
                page.wait_for_function(HAS_COLOUR, arg=[swatch, canvas])


def slowly(number: int) -> int:
    threading.Event().wait(0.02)
    return number


def test_a_real_cluster_is_seen(browser: Any) -> None:
    """A job with a slow operation is INPUT-BOUND on the page, which names the
    operation; a killed worker is an event.
    """
    with LocalCluster(num_workers=2) as cluster:
        ended = threading.Event()

        def train() -> None:
            dataset = Dataset.range(10**6).map(slowly).batch(4)
            distributed = dataset.apply(distribute("distributed_epoch", cluster.target, "train"))
            for _ in distributed:
                if ended.wait(0.005):
                    return

        loop = threading.Thread(target=train)
        loop.start()
        settings = DashboardSettings(cluster.target, port=0)
        try:
            with DashboardServer(settings) as server, opened(browser, server.link) as page:
                page.wait_for_selector("#verdicts [data-is=INPUT-BOUND]", timeout=60_000)
                page.wait_for_function(
                    "() => document.getElementById('verdicts').textContent.includes('map(slowly)')"
                )
                cluster.workers[0].kill()
                page.wait_for_function(
                    "() => /take over its task/.test(document.getElementById('events').textContent)",
                    timeout=60_000,
                )
                keep(page, "real")
        finally:
            ended.set()
            loop.join(60)
