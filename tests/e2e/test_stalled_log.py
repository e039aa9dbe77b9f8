"""Nobody reads standard error: requests are answered all the same, and the server ends when it is told to."""
import concurrent.futures
import fcntl
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request

from server import MODEL, MODEL_NAME, QUIRE, ROOT


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def fill(pipe):
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        while os.write(pipe, b"\n" * 4096):
            pass
    except BlockingIOError:
        pass
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags)


class StalledServer:
    """Its standard error is a full pipe."""

    def __init__(self, *flags):
        self.reader, writer = os.pipe()
        fill(writer)
        self.port = free_port()
        command = [QUIRE, "serve", MODEL, "--port", self.port, "-v", *flags]
        self.process = subprocess.Popen([str(part) for part in command], cwd=ROOT, stderr=writer, stdout=writer)
        os.close(writer)

    def ask(self, path="/health", body=None, patience=60):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body and json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=patience) as answer:
            answer.read()
            return answer.status

    def wait_until_ready(self):
        end = time.monotonic() + 120
        while True:
            try:
                return self.ask()
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end
                time.sleep(0.05)

    def __enter__(self):
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()
        if self.reader is not None:
            os.close(self.reader)


def test_2000_requests_are_answered_and_the_end_comes():
    with StalledServer("--device", "sim", "--sim-speed", "100") as server:
        body = {"model": MODEL_NAME, "prompt": "Once", "max_tokens": 2}
        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            done = list(clients.map(lambda _: server.ask("/v1/completions", body), range(2000)))
        assert done == [200] * 2000
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_a_reader_that_comes_back_is_told_what_it_missed():
    with StalledServer("--device", "sim", "--sim-speed", "100") as server:
        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            assert list(clients.map(lambda _: server.ask(), range(5000))) == [200] * 5000
        said = b""
        server.process.send_signal(signal.SIGTERM)
        while chunk := os.read(server.reader, 1 << 16):
            said += chunk
        assert server.process.wait(60) == 0
        assert b"log lines are lost" in said and b"goodbye" in said


def test_a_reader_that_is_gone_does_no_harm():
    with StalledServer("--device", "sim", "--sim-speed", "100") as server:
        os.close(server.reader)
        server.reader = None
        assert [server.ask() for _ in range(50)] == [200] * 50
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
