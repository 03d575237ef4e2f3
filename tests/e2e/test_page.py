"""The web page in a headless Chromium, against a toy server: what a person sees and can reach."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from medusakit.server.service import Service
from page_fakes import TEXT, page_service
from server_fakes import listening

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver on this machine"),
]
SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1240,1600",
)  # fmt: skip
WAIT_S = 60
REACHED = {
    "key", "theme", "prompt", "way", "max-tokens", "temperature", "acceptance", "run", "tree", "medusa text",
    "plain text",
}  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield found
    found.quit()


@contextmanager
def opened(browser: Any, pass_s: float, keys: tuple[str, ...] = (), path: str = "") -> Iterator[Service]:
    """A server with its page open. At the end: no other host was asked, and no script failed."""
    with page_service(pass_s, keys) as service, listening(service) as url:
        browser.get(url + path)
        yield service
        browser.get("about:blank")  # the page would go on asking a server that is gone
        messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        asked = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
        # what has no host (chrome:, data:) is the browser's own first tab
        hosts = {urlsplit(one).netloc for one in asked if urlsplit(one).scheme in ("http", "https", "ws", "wss")}
        assert hosts == {urlsplit(url).netloc}
        told = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert not [message for message in told if "401" not in message], told


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def wait(browser: Any, done: Callable[[], Any]) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, WAIT_S, poll_frequency=0.05).until(lambda _: done())


def press(browser: Any, *keys: str, held: str | None = None) -> None:
    from selenium.webdriver import ActionChains, Keys

    chain = ActionChains(browser)
    if held:
        chain.key_down(getattr(Keys, held))
    chain.send_keys(*(getattr(Keys, key, key) for key in keys))
    if held:
        chain.key_up(getattr(Keys, held))
    chain.perform()


def script(browser: Any, code: str) -> Any:
    return browser.execute_script(code)


def test_a_prompt_is_answered_both_ways_and_drafted_tokens_are_marked(browser: Any) -> None:
    with opened(browser, 0.01):
        find(browser, "#prompt").send_keys("what is a tree")
        press(browser, "ENTER", held="CONTROL")
        verdict = wait(browser, lambda: find(browser, "#verdict").text)
        assert "Both say the same, all 160 tokens" in verdict and "times as fast" in verdict
        texts = [
            script(browser, f"return document.querySelector('#{pane} .text').textContent")
            for pane in ("medusa", "plain")
        ]
        assert texts[0] == texts[1] and texts[0][:200] in TEXT * 3
        drafted = browser.find_elements("css selector", "#medusa .token.drafted mark")
        plain = browser.find_elements("css selector", "#medusa .token:not(.drafted)")
        assert len(drafted) > 20 and len(plain) > 20 and len(drafted) + len(plain) == 160
        assert not browser.find_elements("css selector", "#plain mark:not(.inspect mark)")
        shape = [drafted[0].value_of_css_property(name) for name in ("border-bottom-style", "border-bottom-width")]
        assert shape == ["solid", "2px"]  # not by colour alone
        assert drafted[0].value_of_css_property("background-color") != "rgba(0, 0, 0, 0)"
        wait(browser, lambda: len(browser.find_elements("css selector", "#depths tr")) == 4)
        wait(browser, lambda: len(browser.find_elements("css selector", "#tree circle")) > 10)
        wait(browser, lambda: float(find(browser, "#tau").text) > 1)
        assert find(browser, "#ratio").text.endswith("×") and "ms a step" in find(browser, "#step-time").text


def test_tokens_are_inspected_by_arrow_keys(browser: Any) -> None:
    with opened(browser, 0.001):
        find(browser, "#prompt").send_keys("what is a tree")
        find(browser, "#run").click()
        wait(browser, lambda: find(browser, "#verdict").text)
        script(browser, "document.querySelector('#medusa .text').focus()")
        press(browser, "ARROW_RIGHT")
        assert "from the prompt's pass" in find(browser, "#medusa .inspect").text
        told = []
        for _ in range(8):
            press(browser, "ARROW_RIGHT")
            told.append(find(browser, "#medusa .inspect").text)
        assert any("drafted 1 ahead, confirmed" in one for one in told)


def test_everything_is_reached_by_keyboard(browser: Any) -> None:
    name = """const one = document.activeElement; return one.id || one.name
        || (one.classList.contains('text') ? one.closest('article').id + ' text' : one.tagName)"""
    with opened(browser, 0.0):
        script(browser, "document.activeElement.blur()")
        seen = []
        for _ in range(30):
            press(browser, "TAB")
            seen.append(script(browser, name))
        assert set(seen) >= REACHED
        assert script(browser, "return getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_the_theme_is_toggled_and_kept(browser: Any) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    with opened(browser, 0.0):
        before = script(browser, colour)
        find(browser, "#theme").click()
        after = script(browser, colour)
        assert before != after
        browser.refresh()
        assert script(browser, colour) == after
        find(browser, "#theme").click()
        assert script(browser, colour) == before


def test_a_phone_needs_no_sideways_scrolling(browser: Any) -> None:
    with opened(browser, 0.001):
        size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        find(browser, "#prompt").send_keys("what is a tree")
        script(browser, "document.querySelector('#run').click()")
        wait(browser, lambda: find(browser, "#verdict").text)
        assert script(browser, "return document.documentElement.scrollWidth") <= 360
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_running_request_is_cancelled_from_the_list_and_by_escape(browser: Any) -> None:
    with opened(browser, 0.05) as service:
        script(browser, "document.querySelector('#max-tokens').value = 2000")
        find(browser, "#prompt").send_keys("what is a tree")
        press(browser, "ENTER", held="CONTROL")
        wait(browser, lambda: browser.find_elements("css selector", "#requests button"))
        script(browser, "document.querySelector('#requests button').focus()")
        press(browser, "ENTER")
        wait(browser, lambda: "cancelled" in find(browser, "#medusa .text").text)
        wait(browser, lambda: not service.exchanges)
        press(browser, "ENTER", held="CONTROL")
        wait(browser, lambda: browser.find_elements("css selector", "#medusa .token"))
        press(browser, "ESCAPE")
        wait(browser, lambda: "stopped" in find(browser, "#medusa .figures").text)
        wait(browser, lambda: not service.exchanges)


def test_a_key_is_asked_for_and_kept_in_memory_only(browser: Any) -> None:
    with opened(browser, 0.0, keys=("secret-key",)):
        wait(browser, lambda: find(browser, "#status").text == "needs an API key")
        find(browser, "#key").send_keys("secret-key")
        press(browser, "TAB")
        wait(browser, lambda: find(browser, "#status").text == "ready")
        stored = "return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        assert "secret-key" not in script(browser, stored)


def test_the_api_page_shows_every_operation_and_its_fields(browser: Any) -> None:
    with opened(browser, 0.0, path="/docs"):
        wait(browser, lambda: find(browser, "#operations").get_attribute("aria-busy") == "false")
        named = [one.text for one in browser.find_elements("css selector", ".operation summary code")]
        assert {"POST /v1/chat/completions", "POST /medusa/generate", "POST /admin/heads", "GET /health"} <= set(named)
        about = browser.find_elements("css selector", ".operation summary .soft")
        assert len(about) == len(named) and all(one.text.endswith(".") for one in about)
        chat = browser.find_elements("css selector", ".operation")[named.index("POST /v1/chat/completions")]
        chat.find_element("css selector", "summary").click()
        fields = {one.text for one in chat.find_elements("css selector", "tr th")}
        assert {"messages", "messages[].role", "temperature", "stream_options.include_usage", "medusa.budget"} <= fields
        assert "required" in chat.find_element("css selector", "tr").text
