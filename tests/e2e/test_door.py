"""The server before hostile and clumsy clients: what they may hold, and who is served all the same."""
import http.client
import json
import os
import pty
import re
import resource
import select
import selectors
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from server import MODEL, QUIRE, ROOT, QuireServer

MIB = 1 << 20
JSON = "Content-Type: application/json\r\n"


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def rss(server):
    """Resident bytes."""
    status = open(f"/proc/{server.process.pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def health(server):
    """Status and seconds."""
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(server.url + "/health", timeout=60) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
    return status, time.monotonic() - begun


def post(server, path, body, timeout=120):
    request = urllib.request.Request(server.url + path, data=body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def announce(size, path="/tokenize"):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: {size}\r\n\r\n".encode()


def most_files(wanted):
    """Raises this process's limit of open files; the number of connections that it then may make, or skips."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        pytest.skip(f"this process may have {hard} files open, and {wanted} are wanted")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@pytest.fixture(scope="module")
def server():
    with QuireServer("--device", "sim", "--max-num-seqs", 64) as running:
        yield running


def wait_for_handlers(process, patience=60):
    """Until SIGTERM is caught: the line that says where the server listens comes a moment before."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        caught = re.search(r"SigCgt:\s*([0-9a-f]+)", open(f"/proc/{process.pid}/status").read())[1]
        if int(caught, 16) >> (signal.SIGTERM - 1) & int(caught, 16) >> (signal.SIGHUP - 1) & 1:
            return
        time.sleep(0.02)
    raise AssertionError("no handler for SIGTERM and SIGHUP")


# ---- Framing ----

@pytest.mark.parametrize("form", ["size", "extension", "trailer", "trailers"])
def test_framing_fills_no_memory(server, form):
    """100 MB on each of four connections, without an end."""
    piece = {"size": b"0", "extension": b"e", "trailer": b"t", "trailers": b"a: b\r\n"}[form] * (MIB // 6)
    begin = {"size": b"", "extension": b"2;e=", "trailer": b"2\r\n{}\r\n0\r\nt: ", "trailers": b"2\r\n{}\r\n0\r\n"}[form]
    before = rss(server)
    statuses = []
    highest = before
    for _ in range(4):
        with connect(server) as client:
            client.sendall(f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n".encode())
            client.sendall(begin)
            try:
                for _ in range(100 * MIB // len(piece)):
                    client.sendall(piece)
                    highest = max(highest, rss(server))
            except OSError:
                pass  # it is told so, and cut off
            try:
                statuses.append(client.recv(100).split()[1])
            except OSError:
                pass
    print(form, statuses, f"{before / MIB:.1f} MiB before, {highest / MIB:.1f} MiB at most")
    assert set(statuses) <= {b"400", b"431"}
    assert highest - before < 16 * MIB
    assert health(server)[0] == 200


# ---- Connections ----

def test_resets_write_no_errors():
    """A request that is none, and a reset before its answer: anybody can do so, at any rate."""
    with QuireServer("--device", "sim") as server:
        for _ in range(300):
            with connect(server) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(b"GARBAGE\r\n\r\n")
        assert health(server)[0] == 200
        assert server.stop() == 0
        said = server.output()
    assert not [line for line in said.splitlines() if line.startswith("E ")], said[-2000:]
    assert "boost" not in said


def test_idle_sockets_do_not_hide_health():
    most_files(2000)
    with QuireServer("--device", "sim", "--max-connections", 1000) as server:
        idle = [connect(server) for _ in range(1030)]
        told = [health(server) for _ in range(10)]
        print("health beside 1,030 idle sockets:", [f"{status} in {seconds:.3f} s" for status, seconds in told])
        assert {status for status, _ in told} == {200}
        time.sleep(1.5)
        # Those that have sent nothing for a second make way for everything, not only for health.
        statuses = [post(server, "/tokenize", b'{"prompt": "a"}') for _ in range(5)]
        assert statuses[-1] == 200, statuses
        for each in idle:
            each.close()


def test_connections_hold_no_buffers_between_requests():
    """1,000 that have sent a head of 15 KB and stay, and 1,000 amid trailers of 100 KB."""
    most_files(2200)
    with QuireServer("--device", "sim") as server:
        kept = [connect(server) for _ in range(1000)]
        for each in kept:
            each.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(1000).startswith(b"HTTP/1.1 200 ")
        before = rss(server)
        for each in kept:
            each.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 15_000 + b"\r\n\r\n")
            assert each.recv(1000).startswith(b"HTTP/1.1 200 ")
        idle = rss(server)
        for each in kept:
            each.sendall(announce(10).replace(b"Content-Length: 10", b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\nt: ")
        for each in kept:
            try:
                each.sendall(b"t" * 100_000)
            except OSError:
                pass  # it is refused
        assert health(server)[0] == 200
        framing = rss(server)
        print(f"{before / MIB:.1f} MiB, after heads of 15 KB {idle / MIB:.1f} MiB, amid trailers {framing / MIB:.1f} MiB")
        assert idle - before < 8 * MIB
        assert framing - before < 48 * MIB
        for each in kept:
            each.close()


def test_pipelined_requests_do_not_hide_health():
    """1,500 sockets ask for /metrics 300 times each at once and read nothing; then somebody new comes."""
    most_files(2000)
    with QuireServer("--device", "sim") as server:
        asking = []
        for _ in range(1500):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            one.connect(("127.0.0.1", server.port))
            one.setblocking(False)
            try:
                one.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
            except BlockingIOError:
                pass
            asking.append(one)
        status, seconds = health(server)
        print(f"health: {status} in {seconds:.2f} s")
        assert status == 200 and seconds < 10  # one newcomer a turn of the I/O thread would take 20 s and more
        for one in asking:
            one.close()
        assert server.stop() == 0


def test_slow_bodies_hold_no_place():
    """All places with a byte of a small body each, 3,000 sockets that say nothing behind them, and good requests."""
    most_files(4000)
    with QuireServer("--device", "sim", "--max-connections", 500) as server:
        slow = [connect(server) for _ in range(500)]
        for each in slow:
            each.sendall(announce(1000) + b"{")
        idle = []
        for _ in range(3000):
            idle.append(socket.socket())
            idle[-1].setblocking(False)
            idle[-1].connect_ex(("127.0.0.1", server.port))
        status, seconds = health(server)
        print(f"health: {status} in {seconds:.2f} s")
        assert status == 200 and seconds < 20  # nobody waits for the idle ones: 64 of them a second would take 47 s
        end = time.monotonic() + 30  # far below the time that a body may take
        statuses = []
        while time.monotonic() < end and statuses[-1:] != [200]:
            statuses.append(post(server, "/tokenize", b'{"prompt": "a"}'))
            time.sleep(0.1)
        print("good requests:", statuses)
        assert statuses[-1] == 200
        for each in slow + idle:
            each.close()
        assert server.stop() == 0
        assert "refused with status 503 because all connections were in use" in server.output()


def fates(server, count, patience=120):
    """So many simultaneous streams: how often each end."""
    body = json.dumps({"prompt": "a", "max_tokens": 4, "stream": True}).encode()
    request = announce(len(body), "/v1/completions") + body
    selector = selectors.DefaultSelector()
    states = {}
    for _ in range(count):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", server.port))
        states[client] = bytearray()
        selector.register(client, selectors.EVENT_WRITE)
    ends = {}
    deadline = time.monotonic() + patience
    healths = []
    watched = time.monotonic()
    while states and time.monotonic() < deadline:
        if time.monotonic() > watched + 1 and len(healths) < 5:
            healths.append(health(server))
            watched = time.monotonic()
        for key, events in selector.select(timeout=1):
            client = key.fileobj
            try:
                if events & selectors.EVENT_WRITE:
                    client.sendall(request)
                    selector.modify(client, selectors.EVENT_READ)
                    continue
                got = client.recv(65536)
            except OSError as error:
                got = b""
                if not states[client]:
                    states[client] = bytearray(f"? {type(error).__name__}".encode())
            states[client] += got
            said = states[client]
            if got and not said.endswith(b"0\r\n\r\n") and b"Content-Length" not in said:
                continue
            if got and b"Content-Length" in said and not said.rstrip().endswith(b"}"):
                continue
            end = bytes(said.split()[1]).decode() if said else "nothing"
            if end == "200" and not said.endswith(b"0\r\n\r\n"):
                end = "200 cut"
            ends[end] = ends.get(end, 0) + 1
            selector.unregister(client)
            client.close()
            del states[client]
    if states:
        ends["unanswered"] = len(states)
    for client in states:
        client.close()
    return ends, healths


def test_each_of_many_streams_gets_an_answer():
    count = int(os.environ.get("QUIRE_STORM", "3000"))
    most_files(count + 200)
    with QuireServer("--device", "sim", "--max-connections", 500) as server:
        ends, healths = fates(server, count)
        print(f"{count} streams at once:", ends, "health meanwhile:", healths)
        assert set(ends) <= {"200", "429", "503"}, ends
        assert ends["200"] > 0
        assert {status for status, _ in healths} <= {200}
        assert health(server)[0] == 200


def test_more_connections_than_files_are_refused():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))

    told = subprocess.run([QUIRE, "serve", str(MODEL), "--device", "sim", "--port", "0", "--max-connections", "1000"],
                          cwd=ROOT, capture_output=True, text=True, timeout=60, preexec_fn=limit)
    assert told.returncode != 0
    assert "--max-connections" in told.stderr and "ulimit -n" in told.stderr
    process = subprocess.Popen([QUIRE, "serve", str(MODEL), "--device", "sim", "--port", "0"], cwd=ROOT,
                               stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    try:
        said = ""
        while "listens on" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        assert "at most 116 connections" in said
        connection = http.client.HTTPConnection("127.0.0.1", int(re.search(r"http://[^ ]*:(\d+)", said)[1]), timeout=60)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        wait_for_handlers(process)
    finally:
        process.terminate()
        process.stderr.close()
        assert process.wait(60) == 0


# ---- Bodies ----

def test_held_bodies_have_one_budget(server):
    """60 bodies of 16 MB, each but for its last byte; then comes one of 160 KB."""
    before = rss(server)
    holders, highest = [], before
    body = b" " * (16_000_000 - 1)
    for _ in range(60):
        client = connect(server)
        holders.append(client)
        try:
            client.sendall(announce(16_000_000) + body)
        except OSError:
            pass  # it is told 503 before it has sent all
        highest = max(highest, rss(server))
    print(f"60 held bodies of 16 MB: {before / MIB:.0f} MiB before, {highest / MIB:.0f} MiB at most")
    assert highest - before < 400 * MIB
    prompt = json.dumps({"prompt": "a " * 80_000}).encode()
    begun = time.monotonic()
    statuses = []
    while time.monotonic() < begun + 60:
        statuses.append(post(server, "/tokenize", prompt))
        if statuses[-1] == 200:
            break
        time.sleep(0.2)
    print(f"a body of 160 KB beside them: {statuses} in {time.monotonic() - begun:.2f} s")
    assert statuses[-1] == 200
    for client in holders:
        client.close()


# ---- Signals ----

def wait_for(process, fd, mark, patience=60):
    said = b""
    end = time.monotonic() + patience
    while mark not in said:
        assert time.monotonic() < end, said
        if select.select([fd], [], [], 0.2)[0]:
            try:
                said += os.read(fd, 65536)
            except OSError:
                break
    return said.decode(errors="replace")


def test_two_signals_without_a_request_are_a_clean_end():
    for _ in range(5):  # the second may come at any moment
        with QuireServer("--device", "sim") as server:
            for _ in range(3):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.002)
            assert server.process.wait(60) == 0
            assert "still running" not in server.output()


def test_sighup_without_a_terminal_is_ignored():
    with subprocess.Popen([QUIRE, "serve", str(MODEL), "--device", "sim", "--port", "0"], cwd=ROOT, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            fd = process.stderr.fileno()
            port = int(re.search(r"listens on http://[^ ]*:(\d+)", wait_for(process, fd, b"listens on"))[1])
            wait_for_handlers(process)
            for _ in range(2):
                process.send_signal(signal.SIGHUP)
                assert "SIGHUP" in wait_for(process, fd, b"SIGHUP")
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/health")
                assert connection.getresponse().status == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_sighup_of_a_terminal_ends_and_saves(tmp_path):
    kept = tmp_path / "prefixes"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(QUIRE, [QUIRE, "serve", str(MODEL), "--port", "0", "--prefix-cache-file", str(kept)])
    said = wait_for(None, terminal, b"listens on")
    port = int(re.search(r"listens on http://[^ ]*:(\d+)", said)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"prompt": "Once upon a time there was a fox. " * 8, "max_tokens": 4})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    os.close(terminal)  # the terminal hangs up
    end = time.monotonic() + 60
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError("it goes on without its terminal")
    assert os.waitstatus_to_exitcode(status) == 0
    assert kept.exists(), "what SIGTERM would save is saved"


def test_a_second_signal_ends_streams_with_an_error():
    with QuireServer("--device", "sim", "--cost-step-us", 20000) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = json.dumps({"prompt": "a", "max_tokens": 500, "stream": True, "ignore_eos": True})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        begin = answer.read(200)
        assert begin.startswith(b"data: ")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("shutting down")
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        rest = answer.read().decode()  # to the proper end of the chunks, or http.client.IncompleteRead
        assert "shutting_down" in rest and rest.endswith("data: [DONE]\n\n")
        server.process.wait(60)
        print(f"the second signal ended it in {time.monotonic() - begun:.2f} s")


def test_a_reader_of_standard_error_that_goes_away_does_no_harm():
    process = subprocess.Popen([QUIRE, "serve", str(MODEL), "--device", "sim", "--port", "0", "-v"], cwd=ROOT,
                               stderr=subprocess.PIPE)
    try:
        port = int(re.search(r"listens on http://[^ ]*:(\d+)",
                             wait_for(process, process.stderr.fileno(), b"listens on"))[1])
        process.stderr.close()
        for _ in range(20):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(60) == 0
