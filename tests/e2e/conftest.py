import signal
import sys

# Ignored where nohup runs the tests, and all that they start would inherit it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionfinish():
    if browser := sys.modules.get("browser"):
        browser.quit_browsers()
