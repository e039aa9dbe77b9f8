#!/usr/bin/env python3
"""Pictures of the page at /, with the demo model: `./dev screenshots`.

screenshots.py QUIRE MODEL_DIR FOLDER      writes FOLDER/talk-*.png, look*.png and both-wide.png; needs chromium and selenium

The story is the same each time: it has a seed. Look is taken while 16 clients share a pool that is too small for them.
"""
import asyncio
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import demo

WIDE, NARROW, WIDEST = (1400, 900), (420, 860), (2560, 1300)
LOOKS = [("look", WIDE, "light"), ("look-dark", WIDE, "dark"), ("look-narrow", NARROW, "light")]
CLIENTS = 16
MOST_BYTES = 500_000
SETTINGS = {"set-temperature": "0.7", "set-max_tokens": "220", "set-seed": "7"}
WISH = "Tell me a story about a little owl named Olga."


@contextlib.contextmanager
def running_server(quire, model):
    """Its port. K/V for about six stories of 250 tokens."""
    port = demo.free_port()
    command = [quire, "serve", model, "--port", str(port), "--num-blocks", "96", "--max-num-seqs", str(CLIENTS),
               "--preemption-mode", "swap", "--swap-space", "4MiB"]
    if "--live" in subprocess.run([quire, "serve", "--help"], capture_output=True, text=True, check=True).stdout:
        command.append("--live")
    server = subprocess.Popen(command)
    try:
        asyncio.run(demo.ready(port, server))
        yield port
    finally:
        server.terminate()
        server.wait(timeout=60)


@contextlib.contextmanager
def running_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or sys.exit("there is no chromium")
    options.add_argument("--headless=new")
    options.add_argument("--hide-scrollbars")
    options.add_argument("--force-color-profile=srgb")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def shape(driver, size, theme):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": theme}, {"name": "prefers-reduced-motion", "value": "reduce"}]})
    time.sleep(0.5)  # until it is drawn anew


def show(driver, view):
    driver.find_element(By.CSS_SELECTOR, f"#views button[data-view={view}]").click()


def pause_while_some_wait(driver):
    """The view stands still then, so its lists and its numbers are of the same step."""
    waits = "return document.querySelector('#look .look-lists section').innerText.includes('#')"
    button = driver.find_element(By.CSS_SELECTOR, "#look [aria-label='Pause the view']")
    for _ in range(100):
        button.click()
        time.sleep(0.5)
        if driver.execute_script(waits):
            return
        button.click()
        time.sleep(0.2)
    sys.exit("nobody waits, although the pool is small")


def take(driver, folder, name):
    path = folder / f"{name}.png"
    driver.save_screenshot(str(path))
    size = path.stat().st_size
    print(f"{path}: {size // 1000} kB")
    if size > MOST_BYTES:
        sys.exit(f"{path} is larger than {MOST_BYTES // 1000} kB")


def ask_for_a_story(driver):
    wait = WebDriverWait(driver, 60)
    wait.until(lambda _: driver.find_element(By.ID, "model").is_enabled())
    driver.find_element(By.ID, "open-settings").click()
    for name, value in SETTINGS.items():
        field = driver.find_element(By.ID, name)
        wait.until(lambda _: field.is_displayed())
        field.clear()
        field.send_keys(value)
    driver.find_element(By.ID, "close-settings").click()
    driver.find_element(By.ID, "entry").send_keys(WISH)
    driver.find_element(By.ID, "send").click()
    items = driver.find_element(By.ID, "items")
    wait.until(lambda _: len(items.text) > len(WISH) + 200)
    wait.until(lambda _: not driver.find_element(By.ID, "stop").is_displayed())


async def keep_busy(port, over):
    async def client(number):
        turns = list(demo.conversations())
        turn = number
        while not over.is_set():
            await demo.converse(port, number, turns[turn % len(turns)])
            turn += CLIENTS
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))


@contextlib.contextmanager
def load(port):
    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(keep_busy(port, over)))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main():
    quire, model, folder = sys.argv[1:4]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with running_server(quire, model) as port, running_browser() as driver:
        shape(driver, WIDE, "light")
        driver.get(f"http://127.0.0.1:{port}/")
        ask_for_a_story(driver)
        take(driver, folder, "talk-light")
        shape(driver, WIDE, "dark")
        take(driver, folder, "talk-dark")
        shape(driver, NARROW, "light")
        take(driver, folder, "talk-narrow")
        shape(driver, WIDE, "light")
        with load(port):
            show(driver, "look")
            time.sleep(20)
            pause_while_some_wait(driver)
            for name, size, theme in LOOKS:
                shape(driver, size, theme)
                take(driver, folder, name)
            shape(driver, WIDEST, "dark")  # first, since narrow windows have no room for both
            show(driver, "both")
            time.sleep(0.5)
            take(driver, folder, "both-wide")
        errors = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
        for entry in errors:
            print("the browser says:", entry["message"], file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
