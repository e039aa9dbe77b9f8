"""A headless Chromium with the page at /, for the tests of the page: what they press, read and wait for."""
import json
import os
import re
import shutil
import threading
import urllib.request

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromium-driver are not installed")
KEY = "a-key-for-the-page"
PATIENCE = 120  # s; much else may run on the machine

# Chat requests are answered from window.script, one entry each: {events, status, headers, body, hold, cut, every}.
SCRIPTED = """
window.script = []; window.asked = [];
const original = window.fetch;
window.fetch = async (url, options) => {
  if (window.down && String(url).endsWith('/health')) throw new TypeError('no connection');
  if (!String(url).endsWith('/v1/chat/completions') || window.script.length === 0) return original(url, options);
  window.asked.push(JSON.parse(options.body));
  const one = window.script.shift();
  if (one.status) return new Response(one.body ?? '', {status: one.status, headers: one.headers ?? {}});
  const encoder = new TextEncoder();
  const stream = new ReadableStream({async start(controller) {
    options.signal.addEventListener('abort', () => { try { controller.error(options.signal.reason); } catch {} });
    for (const event of one.events) {
      if (options.signal.aborted) return;
      controller.enqueue(encoder.encode('data: ' + (typeof event === 'string' ? event : JSON.stringify(event)) + '\\n\\n'));
      if (one.every) await new Promise((next) => setTimeout(next, one.every));
    }
    if (one.hold) return;
    if (one.cut) controller.error(new TypeError('network error'));
    else controller.close();
  }});
  return new Response(stream, {status: 200});
};
"""


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def end(reason="stop", tokens=3):
    return [{"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens}}, "[DONE]"]


def answer(*texts, **more):
    return {"events": [delta(content=text) for text in texts] + end(tokens=len(texts)), **more}


# Those that no page uses. Starting one takes a second of CPU time, so that the next page takes it over.
IDLE = []


def start_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ["--headless=new", "--window-size=1400,900", "--disable-dev-shm-usage"]:
        options.add_argument(flag)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(PATIENCE)
    return driver


def quit_browsers():
    while IDLE:
        IDLE.pop().quit()


def forget(driver, origins):
    """Leaves the browser as it began: one empty tab, nothing stored, nothing permitted, nothing in its logs."""
    driver.switch_to.new_window("tab")
    empty = driver.current_window_handle
    for handle in driver.window_handles:
        if handle != empty:
            driver.switch_to.window(handle)
            driver.close()
    driver.switch_to.window(empty)
    for origin in origins:
        driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    driver.execute_cdp_cmd("Browser.resetPermissions", {})
    for log in ("performance", "browser"):
        driver.get_log(log)


class Page:
    """A tab of a browser in which nothing was stored before. `downloads` is where the browser writes files."""

    def __init__(self, server, downloads):
        self.driver = IDLE.pop() if IDLE else start_browser()
        self.origins = set()
        self.server = server
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SCRIPTED})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            forget(self.driver, self.origins)
        except WebDriverException:
            self.driver.quit()
        else:
            IDLE.append(self.driver)

    def open(self):
        self.origins.add(self.server.url)
        self.driver.get(self.server.url + "/")
        self.until(lambda: self.one("#model").is_enabled() or self.all("dialog[open]"))
        return self

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def until(self, holds):
        return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05).until(lambda _: holds())

    def script(self, *answers):
        self.js("window.script.push(...arguments[0])", list(answers))

    def asked(self):
        return self.js("return window.asked")

    def say(self, text, wait=True):
        self.one("#entry").send_keys(text, Keys.ENTER)
        if wait:
            self.idle()

    def idle(self):
        self.until(lambda: self.one("#scroller").get_attribute("aria-busy") == "false")

    def texts(self, role="assistant"):
        return self.js("return [...document.querySelectorAll('.message.' + arguments[0] + ' .body')].map((one) => one.innerText)", role)

    def press(self, selector, text):
        self.js("[...document.querySelectorAll(arguments[0] + ' button')].findLast((one) => one.textContent === arguments[1]).click()",
                selector, text)

    def set(self, name, value):
        if not self.one("#settings").is_displayed():
            self.one("#open-settings").click()
        box = self.one(f"#set-{name}")
        box.clear()
        box.send_keys(value)

    def downloaded(self, file):
        """The JSON of a file that the browser writes, once it is whole."""
        def whole():
            try:
                return json.loads(file.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                return None
        return self.until(whole)

    def hosts(self):
        """All that was requested since the last call, by scheme and host."""
        urls = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.add(message["params"]["request"]["url"])
        return {re.match(r"[a-z-]+:(//[^/]*)?", url)[0] for url in urls}

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


# All messages that the browser keeps, in order.
KEPT = """
const done = arguments[0], open = indexedDB.open('quire', 1);
open.onsuccess = () => {
  const all = open.result.transaction('messages').objectStore('messages').getAll();
  all.onsuccess = () => { open.result.close(); done(all.result.sort((a, b) => a.order - b.order)); };
};
"""


def kept(page):
    return page.driver.execute_async_script(KEPT)


# K/V for about six stories, so that requests wait, give way and are swapped.
TIGHT = ["--num-blocks", "96", "--max-num-seqs", "16", "--preemption-mode", "swap", "--swap-space", "4MiB"]


class Clients:
    """They ask for stories without end, each for `more` tokens more than the one before it."""

    def __init__(self, server, number, key=None, tokens=200, more=0):
        self.stopping = False
        self.failed = []
        self.tokens, self.more = tokens, more
        self.threads = [threading.Thread(target=self.run, args=(server, i, key)) for i in range(number)]
        for thread in self.threads:
            thread.start()

    def run(self, server, number, key):
        turn = 0
        while not self.stopping:
            turn += 1
            body = {"prompt": "Once upon a time there was a little fox. " * 4 + f"Story {number % 3}", "max_tokens": self.tokens + self.more * number,
                    "seed": 1000 * number + turn, "temperature": 1.0, "ignore_eos": True}
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
            request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(), headers)
            try:
                urllib.request.urlopen(request, timeout=120).read()
            except OSError as error:
                self.failed.append(error)
                return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping = True
        for thread in self.threads:
            thread.join()


def look(page):
    page.open()
    page.one("#views [data-view=look]").click()
    page.until(lambda: page.all("#look canvas"))


def lists(page):
    return page.js("return [...document.querySelectorAll('#look .look-lists section')].map((one) => one.innerText)")


def numbers(page):
    return dict(page.js("return [...document.querySelectorAll('#look .numbers div')].map((one) => "
                        "[one.firstChild.textContent, one.lastChild.textContent])"))


def import_long(page, folder):
    """A conversation of 10,000 messages."""
    messages = [{"id": str(at), "parent": str(at - 1) if at else "", "role": "assistant" if at % 2 else "user",
                 "content": f"message {at}\n\n" + "some *words* " * (at % 60)} for at in range(10_000)]
    file = folder / "long.json"
    file.write_text(json.dumps({"format": "quire-conversations", "version": 1, "conversations": [{"title": "Long", "messages": messages}]}))
    page.one("#import-file").send_keys(str(file))
    page.until(lambda: page.all(".message"))
