"""bench serve against a simulated device, whose pace is known, and against servers that misbehave; bench ops."""
import contextlib
import html.parser
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from server import MODEL_NAME, QuireServer
from test_cli import QUIRE, needs, quire

STEP_MS = 4  # what a step takes at least, with one sequence that decodes
FREE_MS = 40  # what the client and the server may take more than the device, on a busy machine


@pytest.fixture(scope="module")
def server():
    with QuireServer("--device", "sim", "--cost-step-us", 1000, "--cost-decode-us", 3000, "--cost-decode-more-us", 10,
                     "--cost-prefill-tokens-per-ms", 20) as running:
        yield running


def load(server, *flags, status=0):
    done = quire("bench", "serve", "--url", server.url, "--json", *flags, check=False)
    assert done.returncode == status, done.stderr.decode()
    return json.loads(done.stdout)


def check_order(figures):
    for name in ["ttft_ns", "tpot_ns", "itl_ns", "e2e_ns"]:
        times = [figures[name][key] for key in ["p50", "p90", "p99", "max"]]
        assert times == sorted(times) and times[0] > 0
        assert figures[name]["mean"] <= times[-1]
    assert figures["ttft_ns"]["max"] <= figures["e2e_ns"]["max"] <= figures["seconds"] * 1e9


def test_tokens_are_as_asked_and_times_as_the_device_has_them(server):
    before = server.metrics()
    figures = load(server, "--concurrency", 4, "--requests", 12, "--prompt-len", 60, "--output-len", 25)
    assert (figures["requests"], figures["finished"], figures["failed"], figures["unfinished"]) == (12, 12, 0, 0)
    assert figures["model"] == MODEL_NAME and figures["short_answers"] == 0 and figures["errors"] == []
    assert figures["prompt_tokens"] == 12 * 60 and figures["output_tokens"] == 12 * 25 and not figures["tokens_are_pieces"]
    after = server.metrics()
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 12 * 25
    check_order(figures)
    # Prompts of 60 tokens take 3 ms, and each further token a step; three rounds of four.
    assert 3 <= figures["ttft_ns"]["p50"] / 1e6 < 4 * STEP_MS + 12 + FREE_MS
    assert STEP_MS <= figures["tpot_ns"]["p50"] / 1e6 < 4 * STEP_MS + FREE_MS
    assert figures["seconds"] > 3 * 24 * STEP_MS / 1e3
    assert figures["output_tokens_per_second"] == pytest.approx(12 * 25 / figures["seconds"])
    assert figures["good"] is None
    server.wait_until_idle()


def test_requests_come_when_they_are_due(server):
    flags = ("--requests", 20, "--rate", 40, "--output-len", "uniform:2:10")
    figures = load(server, *flags, "--seed", 3)
    assert figures["finished"] == 20 and figures["prompt_tokens"] == 20 * 64
    assert figures["seconds"] > 0.2
    again = load(server, *flags, "--seed", 3)
    other = load(server, *flags, "--seed", 4)
    assert again["output_tokens"] == figures["output_tokens"] != other["output_tokens"]


def test_users_think_between_their_requests(server, tmp_path):
    """The same closed loop as simulate has: at most so many requests at once, and pauses as the same seed draws them."""
    flags = ("--users", 3, "--think-time-ms", "uniform:100:300", "--requests", 12, "--prompt-len", 20, "--output-len", 6, "--seed", 5)
    figures = load(server, *flags)
    assert figures["finished"] == 12
    records = sorted(record[:3] for record in figures["records"])
    for arrival, _, _ in records:
        assert sum(begin <= arrival < end for begin, _, end in records) <= 3
    quire("simulate", *flags, "--cost-step-us", 1000, "--cost-decode-us", 3000, "--cost-decode-more-us", 10, "--cost-prefill-tokens-per-ms", 20,
          "--json", tmp_path / "out.json")
    simulated = json.loads((tmp_path / "out.json").read_text())
    assert figures["output_tokens"] == simulated["output_tokens"]
    least = simulated["elapsed_ns"] / 1e9
    assert least > 0.4 and least * 0.95 < figures["seconds"] < least + 12 * FREE_MS / 1e3
    # Whom each request follows and how long its user thinks is the same: so is when the first ones come.
    first = sorted(record[0] for record in simulated["records"])[:3]
    assert [record[0] for record in records[:3]] == pytest.approx(first, abs=FREE_MS * 1e6)


def test_a_user_goes_on_after_a_request_that_failed(server):
    done = quire("bench", "serve", "--url", server.url, "--json", "--users", 2, "--requests", 6, "--prompt-len", 100_000, "--output-len", 5, check=False)
    figures = json.loads(done.stdout)
    assert done.returncode == 1 and figures["failed"] == 6 and figures["unfinished"] == 0


def test_shared_prefixes_are_found_in_the_cache(server):
    before = server.metrics()
    load(server, "--requests", 8, "--concurrency", 1, "--prompt-len", 8, "--prefix-length", 64, "--num-prefixes", 2,
         "--output-len", 2, "--seed", 99)
    after = server.metrics()
    assert after["vllm:prefix_cache_hits_total"] - before["vllm:prefix_cache_hits_total"] >= 6 * 64


@pytest.mark.parametrize("flags", [["--words"], ["--endpoint", "chat"], ["--stop-at-eos"]])
def test_other_forms_of_request(server, flags):
    figures = load(server, "--requests", 3, "--prompt-len", 10, "--output-len", 8, *flags)
    assert figures["finished"] == 3 and figures["prompt_tokens"] >= 30
    assert figures["output_tokens"] == 24 or (flags == ["--stop-at-eos"] and figures["short_answers"] > 0)


def test_objectives(server):
    flags = ("--requests", 4, "--output-len", 4)
    assert load(server, *flags, "--slo", "ttft=60s,tpot=60s")["good"] == 4
    # Long enough that a client that is late does not find all of an answer at once.
    figures = load(server, "--requests", 4, "--output-len", 100, "--slo", "tpot=500us")
    assert figures["good"] == 0 and figures["good_requests_per_second"] == 0 and figures["slo"]["ttft_ns"] is None


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "path", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_page_and_a_table(server, tmp_path):
    out = tmp_path / "load.html"
    done = quire("bench", "serve", "--url", server.url, "--api-key", "secret-key", "--requests", 6, "--rate", 50, "--output-len", 5,
                 "--slo", "ttft=60s", "--html", out)
    text = done.stdout.decode()
    assert re.search(r"^6 requests in [0-9.]+ s \(0 failed\): [0-9.]+ output tokens/s, [0-9.]+ requests/s\n384 tokens in, 30 out\n"
                     r"6 of 6 within ttft=60s,attainment=99: ", text)
    assert done.stderr == b"" and "\033" not in text
    page = out.read_text()
    parsed = Page()
    parsed.feed(page)
    assert parsed.open == []
    names = [tag for tag, _ in parsed.tags]
    assert names.count("svg") == 13 and "script" not in names and "link" not in names and "img" not in names
    assert not any({"src", "href"} & attrs.keys() for _, attrs in parsed.tags)
    assert "secret-key" not in page and "--slo" in page and MODEL_NAME in page
    for word in ["TTFT", "TPOT", "ITL", "E2E", "p99", "prefers-color-scheme: dark", "Queue and batch", "K/V pool", "Objectives met"]:
        assert word in page


def test_a_prediction_is_laid_over_a_measurement(server, tmp_path):
    """The same requests in both: they are paired by their numbers."""
    flags = ("--requests", 6, "--rate", 50, "--prompt-len", 40, "--output-len", 5)
    predicted, out, measured = tmp_path / "predicted.json", tmp_path / "load.html", tmp_path / "measured.json"
    quire("simulate", *flags, "--json", predicted)
    done = quire("bench", "serve", "--url", server.url, *flags, "--json", "--overlay", predicted, "--html", out)
    measured.write_bytes(done.stdout)
    page = out.read_text()
    assert "Two runs side by side" in page and "predicted.json" in page and "of 6 pairs of the same request" in page
    assert json.loads(done.stdout)["flags"]["--rate"] == "50"
    over = quire("simulate", *flags, "--html", tmp_path / "sim.html", "--overlay", measured)
    assert over.returncode == 0 and "measured.json" in (tmp_path / "sim.html").read_text()
    said = quire("simulate", "--compare", predicted, measured).stdout.decode()
    assert "median of 6 pairs" in said and re.search(r"^TTFT p50 ms +[0-9.]+ +[0-9.]+ +[0-9.]+$", said, re.M)


def test_what_cannot_be_laid_over_is_refused_before_the_first_request(tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"scheduler": {}}')
    nowhere = ("bench", "serve", "--url", "http://127.0.0.1:1")
    for flags, status, said in [(["--overlay", other], 2, "--overlay: changes nothing without --html"),
                                (["--overlay", other, "--html", "x.html", "--concurrency", "1,2"], 2, "--overlay: changes nothing"),
                                (["--overlay", other, "--html", tmp_path / "x.html"], 1, "other.json: key 'requests': missing")]:
        done = quire(*nowhere, *flags, check=False)
        assert done.returncode == status and said in done.stderr.decode() and done.stderr.count(b"\n") == 1, done.stderr


@pytest.mark.parametrize("trace", ["traces-azure/AzureLLMInferenceTrace_conv.csv", "traces-mooncake/conversation_trace.jsonl"])
def test_traces(server, trace):
    # Their prompts are longer than this model's context: some are refused, and that is said.
    done = quire("bench", "serve", "--url", server.url, "--json", "--trace", needs(trace), "--requests", 6, "--concurrency", 3,
                 check=False)
    figures = json.loads(done.stdout)
    assert figures["finished"] + figures["failed"] == 6
    assert done.returncode == (1 if figures["failed"] else 0)
    if figures["failed"]:
        assert len(figures["errors"]) == 1 and "maximum context length" in figures["errors"][0]["example"]


def test_a_trace_keeps_its_times(server, tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 1000 * i, "input_length": 20 + i, "output_length": 3 + i, "hash_ids": [i]} for i in range(4)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    figures = load(server, "--trace", trace, "--trace-speed", 10)
    assert figures["prompt_tokens"] == 86 and figures["output_tokens"] == 18 and figures["failed"] == 0
    assert 0.3 <= figures["seconds"] < 2


def trace_with_service(path):
    """The second request has none of it, the last all."""
    line = {"timestamp": 0, "input_length": 20, "output_length": 1, "hash_ids": [0]}
    lines = [line | {"priority": 2, "tenant": "a"}, line, line | {"priority": -1, "tenant": "b", "ttft_deadline_ms": 250.7}]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def test_what_a_trace_says_for_the_policies_is_sent(tmp_path):
    trace = trace_with_service(tmp_path / "service.jsonl")
    flags = ("--model", "m", "--trace", trace, "--concurrency", 1)
    sent, sent_with_key = [], []
    for bodies, key in ((sent, []), (sent_with_key, ["--api-key", "k"])):
        with bad_server(streamed(EVENT, DONE) + chunk(b""), bodies=bodies) as url:
            done = quire("bench", "serve", "--url", url, *flags, *key)
        assert (b"the tenants of 3 requests are not sent" in done.stderr) == bool(key)
    fields = [{name: body.get(name) for name in ("priority", "ttft_deadline_ms", "user")} for body in map(json.loads, sent)]
    assert fields == [{"priority": 2, "ttft_deadline_ms": None, "user": "tenant 0"}, {"priority": None, "ttft_deadline_ms": None, "user": "tenant 1"},
                      {"priority": -1, "ttft_deadline_ms": 251, "user": "tenant 2"}]
    assert [json.loads(body).get("user") for body in sent_with_key] == [None] * 3


def test_a_server_that_has_no_use_for_a_priority_says_so(server, tmp_path):
    done = quire("bench", "serve", "--url", server.url, "--json", "--trace", trace_with_service(tmp_path / "service.jsonl"), check=False)
    assert done.returncode == 1 and json.loads(done.stdout)["finished"] == 1
    assert b"priority has no effect with this server's scheduling policy, fcfs" in done.stderr


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_figures_so_far(server, tmp_path, signal_number):
    out = tmp_path / "load.html"
    before = server.metrics()["vllm:request_success_total:length"]
    running = subprocess.Popen([QUIRE, "bench", "serve", "--url", server.url, "--json", "--rate", "20", "--requests", "10000",
                                "--output-len", "3", "--html", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while server.metrics()["vllm:request_success_total:length"] < before + 5:
        assert time.monotonic() < end
        time.sleep(0.05)
    running.send_signal(signal_number)
    said, complaint = running.communicate(timeout=30)
    assert running.returncode == 128 + signal_number
    figures = json.loads(said)
    assert 0 < figures["finished"] < 5000 and figures["unfinished"] == 10000 - figures["finished"]
    check_order(figures)
    assert b"interrupted" in complaint and "Interrupted" in out.read_text()
    server.wait_until_idle()


def test_progress_on_a_terminal_alone(server):
    ours, theirs = pty.openpty()
    running = subprocess.Popen([QUIRE, "bench", "serve", "--url", server.url, "--requests", "4", "--output-len", "3"],
                               stdout=subprocess.PIPE, stderr=theirs)
    said = running.communicate(timeout=30)[0].decode()
    os.close(theirs)
    drawn = os.read(ours, 65536).decode()
    os.close(ours)
    assert "requests [" in drawn and "100%" in drawn and drawn.endswith("\033[K")
    assert said.startswith("4 requests in ")


# ---- a table over the number of clients ----


def test_a_table_over_the_number_of_clients(server, tmp_path):
    out = tmp_path / "table.html"
    flags = ("bench", "serve", "--url", server.url, "--concurrency", "8,1,2", "--requests", 8, "--output-len", "uniform:8:20")
    before = server.metrics()
    done = quire(*flags, "--html", out)
    after = server.metrics()
    head, units, blank, columns, *rows = done.stdout.decode().splitlines()
    assert head == "8 requests a row, of the same lengths and other tokens each time; 4 before them to warm up."
    assert columns.split()[:4] == ["clients", "tokens/s", "x", "1"]
    cells = [row.split() for row in rows]
    assert [row[0] for row in cells] == ["1", "2", "8"] and cells[0][2] == "1.00"
    # A step takes nearly the same for eight as for one.
    assert float(cells[2][2]) > 2
    assert all("iB" in row for row in rows) and any(float(row[7]) > 0 for row in cells)
    # No row finds what another had in the prefix cache.
    assert after["vllm:prefix_cache_hits_total"] == before["vllm:prefix_cache_hits_total"]
    page = out.read_text()
    parsed = Page()
    parsed.feed(page)
    assert parsed.open == [] and [tag for tag, _ in parsed.tags].count("svg") == 5
    assert "clients at once" in page and "by 1, 2, 8 clients, one number after the other" in page


def test_a_table_for_programs(server):
    figures = load(server, "--concurrency", "1,4", "--requests", 4, "--output-len", 6, "--warmup", 1)
    assert figures["requests_a_row"] == 4 and figures["warmup_requests"] == 1
    one, four = figures["rows"]
    assert (one["concurrency"], four["concurrency"]) == (1, 4) and one["ratio"] == 1
    assert one["output_tokens"] == four["output_tokens"] == 24
    assert four["ratio"] == pytest.approx(four["output_tokens_per_second"] / one["output_tokens_per_second"])
    assert 0 < four["resident_bytes"] <= four["resident_peak_bytes"] and 0 <= four["kv_cache_usage_peak"] <= 1


def test_a_warm_up_is_not_counted(server):
    before = server.metrics()
    figures = load(server, "--requests", 4, "--output-len", 5, "--warmup", 3)
    after = server.metrics()
    assert figures["output_tokens"] == 20
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 35


def test_a_table_of_a_server_without_metrics():
    with bad_server(streamed(EVENT, EVENT, DONE) + chunk(b"")) as url:
        done = quire("bench", "serve", "--url", url, "--model", "m", "--requests", 4, "--concurrency", "1,2", "--output-len", 2)
    rows = done.stdout.decode().splitlines()[4:]
    assert len(rows) == 2 and all(row.split()[-3:] == ["-", "-", "-"] for row in rows)


# ---- servers that misbehave ----

EVENT = b'data: {"choices":[{"text":"a"}]}\n\n'
DONE = b"data: [DONE]\n\n"
PAUSE = 0.05  # seconds
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def streamed(*pieces):
    return STREAM + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(map(chunk, pieces))


def whole(status, body):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@contextlib.contextmanager
def bad_server(answer, then=lambda: None, bodies=None):
    """Answers each connection's first request so, and closes it. `answer`: bytes, or several with a time between them. `bodies`: a list for
    the bodies that it was sent."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer_one(connection):
        with connection, contextlib.suppress(OSError):
            got = b""
            while b"\r\n\r\n" not in got:
                piece = connection.recv(65536)
                if not piece:
                    return
                got += piece
            length = re.search(rb"content-length: (\d+)", got, re.I)
            body = got.split(b"\r\n\r\n", 1)[1]
            while length and len(body) < int(length[1]):
                body += connection.recv(65536)
            if bodies is not None:
                bodies.append(body)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i, piece in enumerate([answer] if isinstance(answer, bytes) else answer):
                time.sleep(PAUSE if i > 0 else 0)
                connection.sendall(piece)
            then()

    def listen():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer_one, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def four_at_once(times, chunks):
    """Four tokens a write, each a chunk, or all in one chunk, or with all ids in one event."""
    events = {"chunks": [EVENT] * 4, "one chunk": [EVENT * 4], "one event": [b'data: {"choices":[{"text":"a","token_ids":[1,2,3,4]}]}\n\n']}
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d}}\n\n' % (4 * times)
    last = b"".join(map(chunk, [usage, DONE])) + chunk(b"")
    write = b"".join(map(chunk, events[chunks]))
    return [streamed(), *[write] * (times - 1), write + last]


@pytest.mark.parametrize("chunks", ["chunks", "one chunk", "one event"])
def test_tokens_that_come_together_share_the_time_before_them(chunks):
    """Else the middle one of the times between two tokens would be next to nothing, whatever the pace."""
    times = 12
    with bad_server(four_at_once(times, chunks)) as url:
        done = quire("bench", "serve", "--url", url, "--model", "m", "--requests", 2, "--output-len", 4 * times, "--json")
        figures = json.loads(done.stdout)
        table = quire("bench", "serve", "--url", url, "--model", "m", "--requests", 2, "--concurrency", "1,2", "--output-len",
                      4 * times, "--json", "--warmup", 0)
    for row in [figures, *json.loads(table.stdout)["rows"]]:
        itl, tpot = row["itl_ns"], row["tpot_ns"]
        assert row["output_tokens"] == 8 * times and itl["p50"] > 0.8e9 * PAUSE / 4, itl
        # All of the time between the first read and the last is there, and those of the first read are not.
        assert 0.7 < itl["mean"] * 4 * (times - 1) / (tpot["mean"] * (4 * times - 1)) < 2


@pytest.mark.parametrize("answer, wait, said", [
    (whole(b"429 Too Many", b'{"error":{"message":"later"}}'), 0, "status 429: later"),
    (whole(b"500 Oh", b"<b>oops</b>"), 0, "status 500: <b>oops</b>"),
    (whole(b"200 OK", b'{"choices":[{"text":"a"}]}'), 0, "the answer is not a stream of events"),
    (streamed(EVENT), 0, "closed the connection in the middle of its answer"),
    (STREAM + b"\r\n" + EVENT, 0, "the stream ended before [DONE]"),
    (b"", 0, "closed the connection without an answer"),
    (b"SSH-2.0-OpenSSH_9\r\n", 0, "the answer is not HTTP"),
    (streamed(EVENT), 3, "silent for 0.3 s (--timeout)"),
    (b"", 3, "silent for 0.3 s (--timeout)"),
    (streamed(EVENT, b'data: {"error":{"message":"lost"}}\n\n', DONE) + chunk(b""), 0, "lost"),
    (streamed(EVENT, b"data: what\n\n"), 0, "not a JSON object: what"),
    (streamed(DONE) + chunk(b""), 0, "an answer without a token"),
])
def test_what_goes_wrong_is_said(answer, wait, said):
    with bad_server(answer, lambda: time.sleep(wait)) as url:
        done = quire("bench", "serve", "--url", url, "--model", "m", "--requests", 3, "--concurrency", 2, "--timeout", 0.3, "--json",
                     check=False)
    assert done.returncode == 1
    figures = json.loads(done.stdout)
    assert figures["failed"] == 3 and figures["finished"] == 0
    complaint = done.stderr.decode()
    assert re.match(r"quire: 3 of 3 requests failed: ", complaint) and said in complaint
    assert said in figures["errors"][0]["example"]


@pytest.mark.parametrize("answer", [
    streamed(EVENT, EVENT, DONE) + chunk(b""),   # and closes a connection that it might keep
    STREAM + b"\r\n" + EVENT + EVENT + DONE,     # the end of the connection is the end of the body
    streamed(EVENT, EVENT, DONE),                # and forgets the last chunk
])
def test_servers_that_end_otherwise(answer):
    with bad_server(answer) as url:
        figures = json.loads(quire("bench", "serve", "--url", url, "--model", "m", "--requests", 4, "--concurrency", 1,
                                   "--output-len", 2, "--json").stdout)
    assert figures["finished"] == 4 and figures["output_tokens"] == 8 and figures["tokens_are_pieces"]


@pytest.mark.parametrize("flags, said", [
    (["--url", "127.0.0.1:8000"], "--url: '127.0.0.1:8000' is not of the form http://HOST:PORT"),
    (["--url", "https://a"], "TLS is not spoken here"),
    (["--url", "http://a:70000"], "a port is a number up to 65535"),
    (["--url", "http://127.0.0.1:1"], "quire: http://127.0.0.1:1/v1/models: no server listens there: start one"),
    (["--concurrency", "2", "--rate", "1"], "--concurrency: cannot be combined with --rate"),
    (["--endpoint", "embeddings"], "--endpoint: 'embeddings' is not one of completions, chat"),
    (["--timeout", "0"], "--timeout: 0 is not a number from 0.001 to"),
    (["--slo", "ttft=-1ms"], "--slo: 'ttft=-1ms': is not a time"),
    (["--words", "--vocab-size", "9"], "--vocab-size: cannot be combined with --words"),
    (["--requests", "0"], "the workload has no requests"),
    (["--concurrency", "2", "--users", "3"], "--concurrency: cannot be combined with --users"),
    (["--users", "3", "--rate", "1"], "--rate: cannot be combined with --users"),
    (["--think-time-ms", "5"], "--think-time-ms: no request follows another without --users"),
    (["--concurrency", "1,4,1"], "--concurrency: 1 is given twice"),
    (["--concurrency", "0,4"], "--concurrency: 0 is not a number of clients"),
    (["--concurrency", "1,9", "--requests", "8"], "--concurrency: 9 clients have only 8 requests"),
    (["--concurrency", "1,x"], "--concurrency: 'x' is not a number from 0"),
    (["--concurrency", "2", "--trace", "/dev/null", "--trace-speed", "2"], "--concurrency: cannot be combined with --trace-speed"),
    (["--endpoint", "chat", "--words"], "--words: changes nothing with --endpoint chat"),
    (["--endpoint", "chat", "--vocab-size", "9"], "--vocab-size: changes nothing with --endpoint chat"),
    (["--output-len", "0"], "--output-len: '0' is not one of"),
    (["--html", "/nowhere/x.html"], "/nowhere/x.html: cannot be written"),
    (["--trace", "/nowhere/x.csv"], "/nowhere/x.csv: no such file"),
])
def test_bad_flags(flags, said):
    done = quire("bench", "serve", *flags, check=False)
    assert done.returncode in (1, 2) and said in done.stderr.decode() + done.stdout.decode()


def test_a_wrong_model_is_named(server):
    done = quire("bench", "serve", "--url", server.url + "/v1", "--model", "other", "--requests", 2, check=False)
    assert done.returncode == 1 and done.stdout == b""
    assert "2 of 2 requests failed: status 404" in done.stderr.decode() and "other" in done.stderr.decode()


# ---- bench ops ----


def test_ops(tmp_path):
    names = quire("bench", "ops", "--list", "--isa", "auto").stdout.decode().split()
    assert len(names) == len(set(names)) > 40 and names[0] == "parallel_for"
    assert {name.split("/")[0] for name in names} == {"parallel_for", "matmul", "attention", "rms_norm", "swiglu"}
    out = tmp_path / "ops.json"
    text = quire("bench", "ops", "--isa", "auto", "--filter", "^(parallel_for$|rms_norm/.*/1x)", "--repeats", 2, "--json",
                 out).stdout.decode()
    figures = json.loads(out.read_text())
    assert [row["name"].split("/")[0] for row in figures["ops"]] == ["parallel_for", "rms_norm"]
    assert figures["machine"] in text and len(text.splitlines()) == 4
    norm = figures["ops"][1]
    assert norm["seconds"] in norm["repeats"] and len(norm["repeats"]) == 2
    assert norm["flops_per_second"] == pytest.approx(4 * 2048 / norm["seconds"]) and norm["peak_bytes_per_second"] > 1e8
    needed = 8 * 2048 / norm["peak_bytes_per_second"], 4 * 2048 / norm["peak_flops_per_second"]
    assert norm["limit_seconds"] == pytest.approx(max(needed)) and "% limit" in text
    for flags, said in [(["--filter", "("], "--filter: '(' is not a regular"), (["--filter", "nothing"], "--filter: no op"),
                        (["--isa", "mmx"], "--isa: this machine has no 'mmx'"), (["--json", "/nowhere/x"], "/nowhere/x: cannot")]:
        done = quire("bench", "ops", *flags, check=False)
        assert done.returncode == (1 if "/nowhere" in said else 2) and said in done.stderr.decode()
