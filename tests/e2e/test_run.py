"""quire run as a person calls it."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import time

import pytest
from server import MODEL, QUIRE, ROOT


def quire(*args, **more):
    return subprocess.run([QUIRE, *map(str, args)], capture_output=True, timeout=120, **more)


def test_the_text_may_stand_behind_the_model():
    by_flag = quire("run", MODEL, "-p", "Once upon a time", "--max-tokens", 10, "--temperature", 0)
    assert by_flag.returncode == 0 and by_flag.stdout
    for args in (["Once upon a time", "--max-tokens", 10], ["--max-tokens", 10, "Once", "upon", "a", "time"]):
        done = quire("run", MODEL, *args, "--temperature", 0)
        assert done.stdout == by_flag.stdout and done.returncode == 0, done.stderr
    both = quire("run", MODEL, "Once", "-p", "Once")
    assert both.returncode == 2 and not both.stdout


def test_a_pipe_is_read_without_a_word():
    done = quire("run", MODEL, "--max-tokens", 4, "--temperature", 0, input=b"Once upon a time")
    assert done.stdout and done.stderr == b""


def test_a_terminal_is_told_that_it_is_read():
    ours, theirs = pty.openpty()
    process = subprocess.Popen([QUIRE, "run", MODEL, "--max-tokens", "4"], stdin=theirs, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    os.close(theirs)
    try:
        said = b""
        end = time.monotonic() + 60
        while b"\n" not in said and time.monotonic() < end:
            if select.select([process.stderr], [], [], 1)[0]:
                said += os.read(process.stderr.fileno(), 4096)
        assert b"reading the text from this terminal" in said and b"Ctrl-D" in said
        os.write(ours, b"Once upon\n\x04")
        out, _ = process.communicate(timeout=60)
        assert out and process.returncode == 0
    finally:
        process.kill()
        os.close(ours)


def wait_until_asleep(process, trace, patience=120):
    """Until it has begun to compute and no thread of it has anything to do any more."""
    end = time.monotonic() + patience
    looks = 0
    while looks < 25:
        assert time.monotonic() < end and process.poll() is None
        stats = [each.read_text() for each in pathlib.Path(f"/proc/{process.pid}/task").glob("*/stat")]
        asleep = trace.exists() and all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats)
        looks = looks + 1 if asleep else 0
        time.sleep(0.02)


def test_speeds_are_those_of_the_steps_however_late_they_are_read(tmp_path):
    """Nobody takes the first token from standard output until long after the last has come."""
    trace = tmp_path / "steps"
    ours, theirs = os.pipe()
    filled = fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    os.write(theirs, b"." * filled)
    process = subprocess.Popen([QUIRE, "run", MODEL, "-p", "Once", "-v", "--ignore-eos", "--max-tokens", "60",
                                "--isa", "reference", "--step-trace", trace], stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    wait_until_asleep(process, trace)
    with os.fdopen(ours, "rb") as out:
        assert len(out.read()) > filled
    _, said = process.communicate(timeout=120)
    speed = re.search(r"60 generated, first after \d+ ms, then ([\d.]+) tok/s", said.decode())
    starts = [json.loads(line)["now"] for line in trace.read_text().splitlines()]
    seconds = (starts[-1] - starts[0]) / 1e9  # as good as from the first token to the last
    assert 1 / 3 < float(speed[1]) / (59 / seconds) < 3


@pytest.mark.parametrize("command", ["run", "chat", "serve"])
def test_what_is_no_model_is_told_so(command, tmp_path):
    """In one line that says what a model is."""
    (tmp_path / "notes").mkdir()
    for path, said in [(ROOT / "README.md", "README.md: is not a model"),
                       (tmp_path / "notes", "notes: is not a model: there is no config.json in it"),
                       (tmp_path / "nowhere", "nowhere: no such file or directory"),
                       (MODEL / "config.json", f"give its directory, {MODEL}")]:
        done = quire(command, path, stdin=subprocess.DEVNULL)
        message = done.stderr.decode()
        assert done.returncode == 1 and said in message and message.count("\n") == 1, message
        assert message.startswith("quire: ") and ("directory" in message)
