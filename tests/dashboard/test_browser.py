"""The page in a real browser, beside the demo's fleet: what a person sees, clicks and reads. Nothing leaves this machine.

Runs with ``make browser-test``. ``LEADLINE_TEST_SCREENSHOTS`` names a folder for the pictures of the README.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer

from leadline.contracts.codec import encode
from leadline.contracts.events import Round, SessionStart
from leadline.contracts.topics import EVENTS
from leadline.dashboard.access import Access
from tests.dashboard.gate import gated
from tests.support.browser import find
from tests.support.core import round_, start

BROWSER = find()
WANTED = os.environ.get("LEADLINE_TEST_BROWSER") == "1"
SCREENSHOTS = os.environ.get("LEADLINE_TEST_SCREENSHOTS", "")
pytestmark = [
    pytest.mark.skipif(not WANTED, reason="needs a browser, and is slow: make browser-test"),
    pytest.mark.timeout(600),
]
TOKEN = "a-token-to-act-with"
HOSTILE = '<img src=x onerror="window.owned=1">\x1b[31mred\x1b[0m\u202egnp'
HOSTILE_SHOWN = '<img src=x onerror="window.owned=1">\\x1b[31mred\\x1b[0m\\u202egnp'
PATIENCE_MS = 90_000
"""Nothing here is timed: this is how long a machine that is busy with something else may take."""


class Demo(NamedTuple):
    """A demo that runs, where its page and its broker are."""

    page: str
    bootstrap: str
    inverting: str
    """Agent of a session that inverts."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    token = tmp_path_factory.mktemp("act") / "token"
    token.write_text(TOKEN)
    agents = "96" if SCREENSHOTS else "24"
    process = subprocess.Popen(
        [sys.executable, "-m", "leadline.cli.main", "demo", "--dashboard", "--agents", agents, "--duration", "900"],
        env={name: value for name, value in os.environ.items() if not name.startswith("LEADLINE_")}
        | {"LEADLINE_DASHBOARD_ACT_TOKEN_FILE": str(token), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    found: dict[str, str] = {}
    for line in process.stdout:
        lines.append(line)
        if told := re.search(r"dashboard at (http://\S+)", line):
            found["page"] = told[1]
        elif (told := re.search(r" at (127\.0\.0\.1:\d+)", line)) and "bootstrap" not in found:
            found["bootstrap"] = told[1]
        elif "agents start" in line:
            break
    assert {"page", "bootstrap"} <= found.keys(), "".join(lines)
    threading.Thread(target=process.stdout.read, daemon=True).start()
    try:
        yield Demo(found["page"], found["bootstrap"], "agent-003")
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


class Tab(NamedTuple):
    page: Any
    requests: list[str]
    troubles: list[str]
    """What the browser itself complained of: errors of scripts, and what the content security policy stopped."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    if BROWSER is None:
        pytest.fail("no browser: install chromium, or run `make browser-test`, which does", pytrace=False)
    with sync_playwright() as playwright:
        # Whatever the page would ask for elsewhere must fail, not wait for a network.
        rules = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        launched = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", f"--host-resolver-rules={rules}", "--disable-background-networking"]
        )
        yield launched
        launched.close()


@pytest.fixture
def tab(browser: Any, demo: Demo) -> Iterator[Tab]:
    yield from opened(browser, {"width": 1440, "height": 1000})


def opened(browser: Any, viewport: dict[str, int], **options: Any) -> Iterator[Tab]:
    context = browser.new_context(viewport=viewport, color_scheme="dark", **options)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    made = Tab(page, [], [])
    page.on("request", lambda request: made.requests.append(request.url))
    page.on("pageerror", lambda error: made.troubles.append(str(error)))
    page.on("console", lambda said: made.troubles.append(said.text) if said.type == "error" else None)
    yield made
    context.close()
    assert made.requests
    assert {urlsplit(url).hostname for url in made.requests if not url.startswith("data:")} == {"127.0.0.1"}
    assert made.troubles == []


def picture(page: Any, name: str) -> None:
    if SCREENSHOTS:
        page.mouse.move(0, 0)
        page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"))


def described(page: Any, *words: str) -> str:
    """What the charts show, once every word is in it."""
    from playwright.sync_api import expect

    every = "".join(f"(?=.*{re.escape(word)})" for word in words)
    expect(page.locator(".charts")).to_have_attribute("aria-label", re.compile(every), timeout=PATIENCE_MS)
    return str(page.locator(".charts").get_attribute("aria-label"))


COLORED = """
([pane, name]) => {
  // How many pixels of a chart are of the colour that the style sheet gives to `name`.
  const canvas = document.querySelectorAll('.charts canvas')[pane];
  const pen = document.createElement('canvas').getContext('2d');
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let n = 0; n < data.length; n += 4)
    if (data[n + 3] > 120 && Math.abs(data[n] - red) + Math.abs(data[n + 1] - green) + Math.abs(data[n + 2] - blue) < 60) count++;
  return count;
}
"""


def test_why_a_session_was_halted_in_three_clicks(tab: Tab, demo: Demo) -> None:
    """The fleet, a click on the incidents, one on the session: the chart has the threshold, the halt and the recovery."""
    from playwright.sync_api import expect

    page = tab.page
    page.goto(demo.page)
    page.locator("table.sessions tbody tr").nth(23).wait_for()
    if SCREENSHOTS:
        page.locator("section[aria-label='Commands in flight'] tbody tr").first.wait_for()
        picture(page, "fleet")
    page.get_by_role("link", name="Incidents", exact=True).click()
    found = page.locator(".records li", has_text="salience inversion").first
    found.wait_for()
    session = found.locator("a.id")
    name = session.inner_text()
    session.click()
    page.wait_for_url("**/session?**")
    assert page.get_by_role("heading", level=1).inner_text() == name
    told = described(page, "floor 0.25", "inversion at round", "halt at round", "halt accepted at round", "resume at round")
    assert told.startswith("Raw ratio, spans, cosine and depth over ")
    story = page.locator(".story")
    for sentence in ("salience inversion: raw ratio", "Halt commanded for inversion", "The agent accepted the halt", "Released:"):
        story.get_by_text(sentence).first.wait_for()
    page.get_by_role("button", name="All", exact=True).click()
    for pane, color, what in (
        (0, "--limit", "the floor"),
        (0, "--m-incident", "the incident"),
        (0, "--m-command", "the halt"),
        (0, "--m-release", "the release"),
        (0, "--line-ratio", "the raw ratio"),
        (1, "--line-spans", "the spans"),
        (1, "--limit", "the span floor"),
        (2, "--line-cosine", "the cosine"),
        (3, "--line-depth", "the depth"),
    ):
        assert page.evaluate(COLORED, [pane, color]) > 20, f"{what} is not drawn"
    page.get_by_role("button", name="Last incident").click()
    page.locator(".charts").hover()
    expect(page.locator(".readout")).to_have_text(re.compile(r"round [\d,]+ · raw ratio"), timeout=PATIENCE_MS)
    picture(page, "session")


def test_filters_are_in_the_address_and_survive_a_reload(tab: Tab, demo: Demo) -> None:
    from playwright.sync_api import expect

    page = tab.page
    page.goto(f"{demo.page}?fleet=demo")
    page.locator("table.sessions tbody tr").nth(23).wait_for()
    page.locator("[name=agent]").fill(demo.inverting)
    page.locator(".tile", has_text="healthy").click()
    page.locator("[name=rule]").select_option("inversion")
    query = urlsplit(page.url).query
    assert set(query.split("&")) == {"fleet=demo", f"agent={demo.inverting}", "state=healthy", "rule=inversion"}
    page.reload()
    page.locator(".filters").wait_for()
    expect(page.locator("[name=rule]")).to_have_value("inversion", timeout=PATIENCE_MS)
    assert page.locator("[name=agent]").input_value() == demo.inverting
    assert page.locator("[name=state]").input_value() == "healthy"
    assert page.locator(".tile[aria-pressed=true]").inner_text().split()[-1] == "healthy"
    page.get_by_role("button", name="Clear filters").click()
    assert urlsplit(page.url).query == ""


def test_what_an_agent_calls_itself_is_text(tab: Tab, demo: Demo) -> None:
    producer = Producer({"bootstrap.servers": demo.bootstrap, "log_level": 0})
    whose: dict[str, Any] = {"session_id": HOSTILE, "agent_id": "<b>a</b>", "fleet": "<i>f</i>"}
    records: list[SessionStart | Round] = [start(**whose), *(round_(number, **whose) for number in (1, 2, 3))]
    for record in records:
        producer.produce(EVENTS.name, encode(record), HOSTILE.encode())
    assert producer.flush(60) == 0
    page = tab.page
    page.goto(demo.page)
    link = page.locator("table.sessions").get_by_role("link", name=HOSTILE_SHOWN)
    page.locator("[name=q]").fill("onerror")
    link.wait_for()
    link.click()
    page.wait_for_url("**/session?**")
    heading = page.get_by_role("heading", level=1)
    assert heading.inner_text() == HOSTILE_SHOWN
    assert page.locator("main img, main b, main i:not([class])").count() == 0
    assert page.evaluate("window.owned") is None
    assert page.locator("script").count() == 2, "the page's own, and no other"


def test_a_page_on_the_wall_comes_back_by_itself(browser: Any) -> None:
    """A link leads to signing in and from there to what it named; a proxy's 502 is no end; a sign-in that lapsed is asked for."""
    link = "/?fleet=f%261&state=halted"
    with gated(Access(token=TOKEN)) as gate:
        for made in opened(browser, {"width": 1280, "height": 900}):
            page = made.page
            page.goto(gate.address + link)
            assert urlsplit(page.url).path == "/login"
            page.locator("#token").fill(TOKEN)
            page.get_by_role("button", name="Look at the fleet").click()
            page.wait_for_url(gate.address + link)
            page.locator(".age.good").wait_for()
            gate.down = True
            gate.cut()
            page.locator(".age", has_text="no connection").wait_for()
            deadline = time.monotonic() + PATIENCE_MS / 1000
            while gate.refused < 3:  # The browser's own attempt, ours to ask why, and ours to begin anew.
                assert time.monotonic() < deadline
                page.wait_for_timeout(50)
            gate.down = False
            page.locator(".age.good").wait_for()
            page.context.clear_cookies()
            gate.cut()
            page.wait_for_url("**/login?next=*")
            page.goto(f"{gate.address}/login?next=//elsewhere.example/")
            page.locator("#token").fill(TOKEN)
            page.get_by_role("button", name="Look at the fleet").click()
            page.wait_for_url(f"{gate.address}/")
            made.troubles[:] = [said for said in made.troubles if not re.search("502|401", said)]  # What was refused.


def test_axe_finds_no_serious_violation(browser: Any, demo: Demo) -> None:
    """Each page by every rule; then in its second colours, by the rule on colours alone: all else is the same page.

    Only violations are described node by node: to describe all that passed takes as long as to look. Without motion, as colours
    that are still turning into those of the other theme are neither's.
    """
    from axe_playwright_python.sync_playwright import Axe

    wanted: dict[str, Any] = {"resultTypes": ["violations"]}
    colors = wanted | {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    for made in opened(browser, {"width": 1280, "height": 900}, reduced_motion="reduce"):
        made.page.goto(demo.page)
        made.page.locator("table.sessions tbody tr").nth(20).wait_for()
        session = made.page.locator("table.sessions a").first.get_attribute("href")
        for path in ("", session.removeprefix("/"), "incidents", "incidents?what=commands", "shadow"):
            made.page.emulate_media(color_scheme="dark")
            made.page.goto(demo.page + path)
            made.page.locator("main h1").wait_for()
            if "session" in path:
                described(made.page, "Raw ratio")
            for scheme, options in (("dark", wanted), ("light", colors)):
                made.page.emulate_media(color_scheme=scheme)
                found = Axe().run(made.page, options=options).response
                assert {one["id"] for one in found["passes"]} >= {"color-contrast"}, "it has looked"
                grave = [
                    f"{one['id']}: {one['help']}: {json.dumps([node['html'][:200] for node in one['nodes'][:3]])}"
                    for one in found["violations"]
                    if one["impact"] in ("serious", "critical")
                ]
                assert grave == [], f"{scheme} /{path}"


def test_the_keyboard_reaches_everything(tab: Tab, demo: Demo) -> None:
    page = tab.page
    page.goto(demo.page)
    page.locator("table.sessions tbody tr").nth(20).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("canvas").focus()
    page.keyboard.press("End")
    last = page.locator(".pointed").inner_text()
    page.keyboard.press("Home")
    assert page.locator(".pointed").inner_text().split(":")[0] != last.split(":")[0]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    told = page.locator(".pointed").inner_text()
    assert "raw ratio" in told
    page.keyboard.press("Enter")
    page.wait_for_url("**/session?**")
    page.get_by_role("heading", level=1, name=told.split(":")[0]).wait_for()


def test_it_fits_a_phone(browser: Any, demo: Demo) -> None:
    for made in opened(browser, {"width": 390, "height": 844}, is_mobile=True, has_touch=True, device_scale_factor=2):
        made.page.goto(demo.page)
        made.page.locator("table.sessions tbody tr").nth(20).wait_for()
        picture(made.page, "phone")
        session = made.page.locator("table.sessions a").first.get_attribute("href")
        for path in ("", session.removeprefix("/"), "incidents", "shadow"):
            made.page.goto(demo.page + path)
            made.page.locator("main h1").wait_for()
            wide = made.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"/{path} is {wide} px wider than the screen"


def test_a_person_halts_and_releases_and_is_named(tab: Tab, demo: Demo) -> None:
    page = tab.page
    page.goto(f"{demo.page}?agent=agent-000")
    page.locator("table.sessions a").first.click()
    page.get_by_role("button", name="Halt…").click()
    page.locator("dialog [name=why]").fill("a drill, <b>really</b>")
    page.locator("dialog [name=who]").fill("ada")
    page.locator("dialog [name=token]").fill("wrong")
    page.get_by_role("button", name="Halt this session").click()
    page.get_by_text("that is not the token for acting").wait_for()
    page.locator("dialog [name=token]").fill(TOKEN)
    page.get_by_role("button", name="Halt this session").click()
    page.get_by_text("halted by hand by ada: a drill, <b>really</b>").first.wait_for()
    described(page, "manual at round", "halt accepted at round")
    page.locator(".hero .state", has_text="halted").wait_for()
    page.get_by_role("button", name="Release from manual…").click()
    page.locator("dialog [name=why]").fill("it is over")
    page.get_by_role("button", name="Release this session").click()
    page.get_by_text("Released: released by hand by ada: it is over").first.wait_for()
    tab.troubles[:] = [said for said in tab.troubles if "403" not in said]  # the wrong token, refused
