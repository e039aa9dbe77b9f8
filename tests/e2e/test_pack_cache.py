"""--pack-cache: the second start takes the packed weights out of a file, and nothing else changes."""
import shutil
import subprocess

import pytest

from server import QUIRE, QuireServer
from test_cli import DEMO, ROOT, quire

FLAGS = ["--max-tokens", 24, "--temperature", 0, "--num-blocks", 64]


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(DEMO, tmp_path / "model")


def run(model, *flags, **more):
    done = quire("run", model, "-p", "Once upon a time", "-v", *FLAGS, *flags, **more)
    return done.stdout, done.stderr.decode()


@pytest.mark.parametrize("flags", [[], ["--dtype", "f32"], ["--quantization", "int8"], ["--quantization", "int4"]])
def test_the_text_is_the_same(model, flags):
    plain, _ = run(model, *flags)
    first, said = run(model, *flags, "--pack-cache")
    assert "the packed weights are in" in said
    second, said = run(model, *flags, "--pack-cache")
    assert "the packed weights are those of" in said
    assert plain == first == second and plain


def test_a_folder_for_several_models(model, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    expected, _ = run(model)
    other = shutil.copytree(DEMO, tmp_path / "other" / "model")
    for each in (model, other):
        assert "the packed weights are in" in run(each, "--pack-cache", kept)[1]
    assert len(list(kept.iterdir())) == 2
    for each in (model, other):
        text, said = run(each, f"--pack-cache={kept}")
        assert text == expected and "the packed weights are those of" in said
    assert not list(model.glob("*.quire"))


def test_a_damaged_file_is_made_anew(model):
    expected, _ = run(model, "--pack-cache")
    (path,) = model.glob("*.quire")
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:5000], b"", whole[:9000] + bytes([whole[9000] ^ 16]) + whole[9001:]):
        path.write_bytes(content)
        text, said = run(model, "--pack-cache")
        assert text == expected and "packed anew" in said
        assert path.read_bytes() == whole


def test_starts_at_the_same_time(model):
    expected, _ = run(model)
    command = [QUIRE, "run", model, "-p", "Once upon a time", *FLAGS, "--pack-cache"]
    started = [subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, cwd=ROOT) for _ in range(4)]
    for each in started:
        assert each.communicate(timeout=120)[0] == expected and each.returncode == 0
    assert [path.suffix for path in model.iterdir() if "packed" in path.name] == [".quire"]
    assert "the packed weights are those of" in run(model, "--pack-cache")[1]


def test_serve_and_bench_have_it(model):
    with QuireServer("--pack-cache", model=model) as server:
        assert "the packed weights are in" in server.output()
    with QuireServer("--pack-cache", model=model) as server:
        assert "the packed weights are those of" in server.output()
    quire("bench", "latency", model, "--prompt", 16, "--batch", 1, "--context", 8, "--steps", 1, "--repeats", 1, "--pack-cache")


def test_what_cannot_be_kept_is_told(model, tmp_path):
    absent = tmp_path / "absent"
    refused = quire("run", model, "-p", "x", "--pack-cache", absent, check=False)
    said = refused.stderr.decode()
    assert refused.returncode != 0 and "--pack-cache" in said and str(absent) in said and "cannot be written" in said
    refused = quire("bench", "throughput", model, "--device", "sim", "--pack-cache", check=False)
    assert refused.returncode != 0 and "--pack-cache" in refused.stderr.decode()
