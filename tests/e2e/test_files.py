"""Files around a run: what others do to them, what they must not overwrite, and disks that are full."""
import os
import pathlib
import resource
import shutil
import stat
import subprocess

import pytest

from server import MODEL, MODEL_NAME, QUIRE, QuireServer
from test_cli import quire
from test_warm_restart import STORY, cached, complete

SHORT = ["--max-tokens", 4, "--temperature", 0, "--num-blocks", 64]


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(MODEL, tmp_path / MODEL_NAME)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def run(model, *flags, check=True, **more):
    done = quire("run", model, "-p", "Once upon a time", *SHORT, *flags, check=check, **more)
    return done.stdout, done.stderr.decode(), done.returncode


# A mapped file that becomes shorter.

def ask(server):
    return complete(server, "Once upon a time there was a " + "little fox " * 40, max_tokens=4).choices[0].token_ids


def lost(model, name, flags, server):
    ask(server)
    (path,) = model.glob(name)
    # The pages that a process holds already are taken from it, too.
    os.truncate(path, 100)
    try:
        complete(server, "Another animal of the forest, whose name is Zyx, went to the river", max_tokens=4)
    except Exception:  # the connection ends
        pass
    assert server.process.wait(60) == 1, server.output()
    last = server.output().strip().splitlines()[-1]
    assert last.startswith(f"quire: {path}: a part of it is no longer readable") and "--no-mmap" in last, last


@pytest.mark.parametrize("name,flags", [("packed-*.quire", ["--pack-cache"]), ("model.safetensors", [])])
def test_a_mapped_file_that_shrinks_is_named(model, name, flags):
    with QuireServer(*flags, "--num-blocks", 64, model=model):
        pass
    with QuireServer(*flags, "--num-blocks", 64, model=model) as server:
        lost(model, name, flags, server)


@pytest.mark.parametrize("flags", [[], ["--pack-cache"], ["--quantization", "int8", "--pack-cache"]])
def test_no_mmap_needs_no_file_later(model, flags):
    with QuireServer(*flags, "--num-blocks", 64, model=model) as server:
        expected = ask(server)
    for _ in range(2):
        with QuireServer(*flags, "--num-blocks", 64, "--no-mmap", model=model) as server:
            maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
            assert str(model) not in maps
            for path in [*model.glob("*.quire"), model / "model.safetensors"]:
                os.truncate(path, 100)
            assert ask(server) == expected
        shutil.copy(MODEL / "model.safetensors", model)
        assert server.process.returncode == 0


def test_no_mmap_reads_gguf(model, tmp_path):
    gguf = tmp_path / "model.gguf"
    quire("convert", model, gguf, "--outtype", "q8_0")
    expected, _, _ = run(gguf)
    for flags in (["--no-mmap"], ["--no-mmap", "--pack-cache"], ["--no-mmap", "--pack-cache"]):
        assert run(gguf, *flags)[0] == expected


# Files that others may write.

def test_a_prefix_cache_that_others_may_write_is_not_used(tmp_path):
    path = tmp_path / "prefixes"
    flags = ["--prefix-cache-file", path, "--num-blocks", 64]
    with QuireServer(*flags) as server:
        first = complete(server, STORY).choices[0].token_ids
    assert mode(path) == 0o600
    path.chmod(0o666)
    with QuireServer(*flags) as server:
        answer = complete(server, STORY)
        assert f"{path}: is not trusted: other users may write it" in server.output()
        assert cached(answer) == 0 and answer.choices[0].token_ids == first
    assert mode(path) == 0o600  # made anew
    with QuireServer(*flags) as server:
        assert cached(complete(server, STORY)) > 0
    before = path.read_bytes()
    tmp_path.chmod(0o777)
    with QuireServer(*flags) as server:
        assert cached(complete(server, STORY)) == 0
        server.stop()
        output = server.output()
        assert f"{tmp_path}: is not trusted: other users may write it" in output and "will not be saved there" in output
        assert "the prefix cache is not saved" in server.output()
    assert path.read_bytes() == before


def test_a_pack_cache_that_others_may_write_is_packed_anew(model):
    expected, said, _ = run(model, "--pack-cache")
    (path,) = model.glob("packed-*.quire")
    assert mode(path) & 0o022 == 0
    path.chmod(0o666)
    text, said, _ = run(model, "--pack-cache")
    assert text == expected and f"{path}: is not trusted: other users may write it" in said and "packed anew" in said
    assert mode(path) & 0o022 == 0
    model.chmod(0o777)
    text, said, _ = run(model, "--pack-cache")
    assert text == expected and f"{model}: is not trusted" in said and "are not kept" in said


# What a run writes.

WRITTEN = [("--decision-log", "is not a decision log", b'{"quire_run":'), ("--step-trace", "is not a step trace", b'{"step":')]


@pytest.mark.parametrize("flag,said,begins", WRITTEN)
def test_only_its_user_reads_what_a_run_writes(tmp_path, flag, said, begins):
    path = tmp_path / "written"
    for _ in range(2):  # the second time over the first
        run(MODEL, flag, path)
        assert mode(path) == 0o600 and path.read_bytes().startswith(begins)
        path.chmod(0o644)
    run(MODEL, flag, "/dev/null")


@pytest.mark.parametrize("flag,said,begins", WRITTEN)
def test_no_other_file_is_overwritten(model, flag, said, begins):
    for name in ("model.safetensors", "config.json"):
        before = (model / name).read_bytes()
        _, output, status = run(model, flag, model / name, check=False)
        assert status == 1 and f"{model / name}: {said} and is not overwritten" in output
        assert (model / name).read_bytes() == before
    (model / "empty").touch()
    run(model, flag, model / "empty")
    assert (model / "empty").read_bytes().startswith(begins)


def test_simulate_overwrites_no_other_file(model):
    before = (model / "config.json").read_bytes()
    done = quire("simulate", "--demo", "--decision-log", model / "config.json", check=False)
    assert done.returncode == 1 and "is not a decision log" in done.stderr.decode()
    assert (model / "config.json").read_bytes() == before


def test_the_help_says_what_holds_prompts():
    text = " ".join(quire("serve", "--help").stdout.decode().split())
    for flag in ("--prefix-cache-file FILE", "--decision-log FILE"):
        of_flag = text.split(flag, 1)[1].split(" --", 1)[0]
        assert "prompts" in of_flag and "only its owner may read it" in of_flag, of_flag


# Disks that are full, and files that are damaged.

def files_of_at_most(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


@pytest.mark.parametrize("size", [0, 100_000])
def test_a_full_disk_costs_the_pack_cache_only(model, size):
    expected, _, _ = run(model)
    text, said, _ = run(model, "--pack-cache", preexec_fn=files_of_at_most(size))
    assert text == expected and "cannot be written: File too large" in said and "are not kept" in said
    assert not [path for path in model.iterdir() if "packed" in path.name]


def test_a_full_file_system_costs_the_pack_cache_only(model, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("SKIPPED, only root may mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", small], capture_output=True).returncode:
        pytest.skip("SKIPPED, no file system can be mounted here")
    try:
        with QuireServer("--pack-cache", small, "--num-blocks", 64, model=model) as server:
            assert "cannot be written: No space left on device" in server.output()
            assert ask(server)
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_read_only_folder_costs_the_pack_cache_only(model):
    expected, _, _ = run(model)
    text, said, status = run(model, "--pack-cache", "/proc")  # where root may not write either
    assert text == expected and status == 0 and "cannot be written" in said and "/proc/" in said


def test_a_damaged_beginning_of_a_prefix_cache_is_begun_anew(tmp_path):
    path = tmp_path / "prefixes"
    flags = ["--prefix-cache-file", path, "--num-blocks", 64]
    with QuireServer(*flags) as server:
        first = complete(server, STORY).choices[0].token_ids
    whole = path.read_bytes()
    for content in (bytes([whole[0] ^ 1]) + whole[1:], b"\0" * 20 + whole[20:], b"\0" * len(whole), whole[:5]):
        path.write_bytes(content)
        with QuireServer(*flags) as server:
            assert "the prefix cache starts empty" in server.output()
            assert complete(server, STORY).choices[0].token_ids == first
        assert path.stat().st_size == len(whole)


def test_what_is_printed_gets_into_no_file_if_the_output_is_closed(tmp_path):
    """The first file that is opened must not become standard output."""
    log = tmp_path / "log"
    done = subprocess.run(["bash", "-c", 'exec "$@" >&-', "-", QUIRE, "simulate", "--requests", "20", "--decision-log", log],
                          capture_output=True, timeout=60)
    assert done.returncode == 1 and b"standard output cannot be written" in done.stderr
    quire("explain", log)
    done = subprocess.run(["bash", "-c", 'exec "$@" >&- 2>&- <&-', "-", QUIRE, "simulate", "--requests", "20", "--decision-log", log],
                          timeout=60)
    assert done.returncode == 1
    quire("explain", log)


@pytest.mark.parametrize("size", [2_000, 200_000])
def test_a_model_that_does_not_fit_leaves_nothing(tmp_path, size):
    """In its first bytes, or later."""
    for command in (["convert", MODEL, tmp_path / "demo.gguf"], ["make-model", "tiny", tmp_path / "made"]):
        done = subprocess.run([QUIRE, *command], capture_output=True, text=True, timeout=60, preexec_fn=files_of_at_most(size))
        assert done.returncode == 1 and "cannot be written: File too large" in done.stderr and ".partial" not in done.stderr
        assert not list(tmp_path.iterdir())
