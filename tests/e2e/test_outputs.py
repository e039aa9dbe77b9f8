"""What commands write: each output to a file of its own, over nothing else, and told where it cannot be."""
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from test_cli import DEMO, QUIRE, quire

RUN = ["run", DEMO, "-p", "Once upon a time", "--max-tokens", 4, "--num-blocks", 64]
OUTPUTS = ["--step-trace", "--decision-log", "--prefix-cache-file"]


# One file for two.

def by_name(folder):
    return folder / "file", folder / "." / "x" / ".." / "file"


def by_link(folder):
    (folder / "link").symlink_to("file")
    return folder / "link", folder / "file"


def by_two_links(folder):
    (folder / "first").symlink_to(folder / "second")
    (folder / "second").symlink_to("x/file")
    return folder / "x" / "file", folder / "first"


def by_hard_link(folder):
    (folder / "file").touch()
    os.link(folder / "file", folder / "other")
    return folder / "file", folder / "other"


def by_linked_folder(folder):
    (folder / "y").symlink_to("x")
    return folder / "x" / "file", folder / "y" / "file"


@pytest.mark.parametrize("one,other", [(one, other) for one in OUTPUTS for other in OUTPUTS if one < other])
@pytest.mark.parametrize("names", [by_name, by_link, by_two_links, by_hard_link, by_linked_folder])
def test_two_outputs_are_two_files(tmp_path, one, other, names):
    (tmp_path / "x").mkdir()
    first, second = names(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = quire(*RUN, one, first, other, second, check=False)
    message = done.stderr.decode()
    assert done.returncode == 2 and message.count("\n") == 1 and "each needs its own file" in message, message
    assert one in message and other in message and done.stdout == b""
    assert sorted(tmp_path.rglob("*")) == before


def test_the_file_that_a_prefix_cache_is_written_to_first_is_its_own(tmp_path):
    done = quire(*RUN, "--prefix-cache-file", tmp_path / "cache", "--decision-log", tmp_path / "cache.part", check=False)
    assert done.returncode == 2 and "is also the file of --prefix-cache-file" in done.stderr.decode()
    assert not list(tmp_path.iterdir())


def test_two_outputs_of_simulate_are_two_files(tmp_path):
    done = quire("simulate", "--requests", 3, "--json", tmp_path / "file", "--decision-log", tmp_path / "file", check=False)
    assert done.returncode == 2 and "each needs its own file" in done.stderr.decode() and not list(tmp_path.iterdir())


@pytest.mark.parametrize("flag", ["--html", *OUTPUTS])
def test_two_outputs_of_calibrate_are_two_files(tmp_path, flag):
    done = quire("calibrate", DEMO, "--out", tmp_path / "file", flag, tmp_path / "file", check=False)
    message = done.stderr.decode()
    assert done.returncode == 2 and "each needs its own file" in message and flag in message and "--out" in message, message
    assert done.stdout == b"" and not list(tmp_path.iterdir())


def test_outputs_that_differ_are_taken(tmp_path):
    (tmp_path / "link").symlink_to("elsewhere")
    quire(*RUN, "--step-trace", tmp_path / "trace", "--decision-log", tmp_path / "link", "--prefix-cache-file", tmp_path / "cache")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "elsewhere", "link", "trace"]
    quire(*RUN, "--step-trace", "/dev/null", "--decision-log", "/dev/null")


# Nothing else is overwritten.

@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "run.log"
    quire("simulate", "--requests", 3, "--decision-log", path)
    return path


@pytest.fixture(scope="module")
def ids(tmp_path_factory):
    path = tmp_path_factory.mktemp("ids") / "ids.json"
    path.write_text(json.dumps({"input_ids": [[1, 2, 3]]}))
    return path


def command_of(name, log, ids):
    return {"simulate": ["simulate", "--requests", 3, "--json"],
            "simulate --html": ["simulate", "--requests", 3, "--html"],
            "simulate --perfetto": ["simulate", "--requests", 3, "--perfetto"],
            "bench ops": ["bench", "ops", "--filter", "rms_norm.*/1x", "--repeats", 1, "--json"],
            "explain": ["explain", log, "--html"],
            "logits": ["logits", DEMO, "--ids-file", ids, "--output"]}[name]


@pytest.mark.parametrize("flag, what", [("--step-csv", "a table of steps"), ("--request-csv", "a table of requests")])
def test_a_table_says_what_it_does_not_overwrite(tmp_path, flag, what):
    path = tmp_path / "letter.txt"
    path.write_text("dear fox")
    said = quire("simulate", "--requests", 3, flag, path, check=False).stderr.decode()
    assert said == f"quire: {path}: is not {what} of quire simulate and is not overwritten (delete it, or choose another name)\n"


@pytest.mark.parametrize("name", ["simulate", "simulate --html", "simulate --perfetto", "bench ops", "explain", "logits"])
def test_an_output_takes_the_place_of_its_own_kind_alone(tmp_path, log, ids, name):
    command = command_of(name, log, ids)
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        path = shutil.copy(DEMO / file, tmp_path)
        done = quire(*command, path, check=False)
        message = done.stderr.decode()
        assert done.returncode == 1 and message.startswith(f"quire: {path}: is not a "), message
        assert "and is not overwritten" in message and message.count("\n") == 1
        assert pathlib.Path(path).read_bytes() == (DEMO / file).read_bytes()
        os.unlink(path)
    path, link, empty = tmp_path / "out", tmp_path / "link", tmp_path / "empty"
    quire(*command, path)
    written = path.read_bytes()
    quire(*command, path)  # over what it wrote
    path.write_bytes(written[:30])  # and over what was cut off there
    quire(*command, path)
    assert len(path.read_bytes()) > 30
    empty.touch()
    link.symlink_to(empty)
    quire(*command, link)
    assert link.is_symlink() and len(empty.read_bytes()) > 30
    assert quire(*command, "/dev/null").returncode == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty", "link", "out"]


def test_a_file_behind_standard_output_has_all_that_is_written_there(tmp_path, log):
    for command, first, last in ((["simulate", "--demo", "--json", "/dev/stdout"], b"96 requests", b"}\n"),
                                 (["explain", log, "--html", "/dev/stdout"], b"<!doctype html>", b"open it in a browser\n")):
        with open(tmp_path / "out", "wb") as out:
            subprocess.run([QUIRE, *map(str, command)], stdout=out, check=True, timeout=120)
        text = (tmp_path / "out").read_bytes()
        assert text.startswith(first) and text.endswith(last) and len(text) > 9000, text[:200]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("flags", [[], ["--concurrency", "1,2"]])
def test_bench_serve_overwrites_no_other_file(tmp_path, flags):
    # Of which no server needs to run: it is told before the first request.
    path = tmp_path / "config.json"
    path.write_text("{}")
    done = quire("bench", "serve", "--url", "http://127.0.0.1:1", *flags, "--html", path, check=False)
    assert done.returncode == 1 and "is not a page of quire bench serve" in done.stderr.decode()
    assert path.read_text() == "{}"


def test_a_fit_and_a_report_do_not_replace_each_other(tmp_path):
    log, fit, report = (tmp_path / name for name in ("log", "fit.html", "report.html"))
    quire("bench", "throughput", DEMO, "--requests", 60, "--output-len", 100, "--step-log", log)
    quire("calibrate", "--from", log, "--html", fit)
    quire("simulate", "--requests", 3, "--html", report)
    before = fit.read_bytes(), report.read_bytes()
    for args, said in ((["calibrate", "--from", log, "--html", report], "is not a page of quire calibrate"),
                       (["simulate", "--requests", 3, "--html", fit], "is not a page of quire bench serve or simulate")):
        done = quire(*args, check=False)
        assert done.returncode == 1 and said in done.stderr.decode()
    assert before == (fit.read_bytes(), report.read_bytes())


def test_make_model_writes_over_nothing(tmp_path):
    model = shutil.copytree(DEMO, tmp_path / "model")
    done = quire("make-model", "tiny", model, check=False)
    assert done.returncode == 1 and "--overwrite writes it anyway" in done.stderr.decode()
    assert (model / "config.json").read_bytes() == (DEMO / "config.json").read_bytes()
    quire("make-model", "tiny", model, "--overwrite")
    assert (model / "config.json").read_bytes() != (DEMO / "config.json").read_bytes()


# Where standard output or standard error cannot be written.

@pytest.mark.parametrize("args", [
    ["tokenize", DEMO, "-p", "Once"], ["detokenize", DEMO, "-i", "[300]"], ["inspect", DEMO], ["inspect", "--families"],
    ["plan", DEMO, "--bandwidth", "1", "--memory", "1GiB"], ["plan", DEMO, "--bandwidth", "1", "--memory", "1GiB", "--json"],
    ["bench", "latency", DEMO, "--prompt", "0", "--batch", "1", "--steps", "1", "--repeats", "1"], ["bench", "ops", "--list"],
    ["simulate", "--requests", "3"], ["--help"], ["--version"],
])
def test_a_full_disk_behind_standard_output_is_told(args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([QUIRE, *map(str, args)], stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 1 and done.stderr == b"quire: standard output cannot be written\n"


@pytest.mark.parametrize("args,status", [(["serve", "--bogus"], 2), (["inspect", "no/such/model"], 1)])
def test_who_does_not_read_standard_error_stops_no_command_for_ever(args, status):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        fcntl.fcntl(writer, fcntl.F_SETFL, 0)  # full, and blocking as it was
    process = subprocess.Popen([QUIRE, *args], stderr=writer, stdout=subprocess.DEVNULL)
    try:
        assert process.wait(60) == status
    finally:
        process.kill()
        os.close(reader)
        os.close(writer)


# What is wrong is told before the model is loaded; what is not to be mapped is not.

@pytest.mark.parametrize("host,status", [("", 2), (" ", 2), ("no such host", 1), ("192.0.2.1", 1)])
def test_an_address_that_is_none_is_told_before_the_weights_are_read(tmp_path, host, status):
    model = shutil.copytree(DEMO, tmp_path / "model")
    (model / "model.safetensors").write_bytes(b"no weights")  # which is what loading them would say
    done = quire("serve", model, "--port", 0, "--host", host, check=False)
    message = done.stderr.decode()
    assert done.returncode == status and message.count("\n") == 1, message
    assert message.startswith("quire: --host: the address is empty" if status == 2 else f"quire: cannot listen on {host}:0: ")


def test_a_port_that_is_taken_is_told_before_the_weights_are_read(tmp_path):
    import socket
    model = shutil.copytree(DEMO, tmp_path / "model")
    (model / "model.safetensors").write_bytes(b"no weights")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = quire("serve", model, "--port", other.getsockname()[1], check=False)
    assert done.returncode == 1 and "Address already in use" in done.stderr.decode(), done.stderr.decode()


def test_no_mmap_maps_no_file_for_a_prefix_cache(tmp_path):
    model = shutil.copytree(DEMO, tmp_path / "model")
    # A part of the model for its fingerprint alone, so long that hashing it is seen. It takes no room on the disk.
    with open(model / "other.safetensors", "wb") as file:
        os.truncate(file.fileno(), 256 << 20)
    process = subprocess.Popen([QUIRE, *map(str, RUN[:1]), model, *map(str, RUN[2:]), "--no-mmap", "--prefix-cache-file",
                                tmp_path / "cache"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    mapped = set()
    while process.poll() is None:
        try:
            maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
        except OSError:
            break  # it has just ended
        mapped |= {line.split()[-1] for line in maps.splitlines() if str(tmp_path) in line}
        time.sleep(0.002)
    assert process.wait(60) == 0, process.stderr.read().decode()
    assert not mapped and (tmp_path / "cache").stat().st_size > 0
