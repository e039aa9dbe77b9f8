"""What CMake is asked for: the version that a build gets, what can be left out, and where warnings are errors."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from test_cli import QUIRE, ROOT

BUILD = pathlib.Path(QUIRE).resolve().parent


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def git(folder, *args):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    return run("git", "-C", folder, "-c", "user.name=n", "-c", "user.email=e@example.org", *args, env=env).strip()


def version_of(source, output):
    run("cmake", f"-DSOURCE={source}", "-DVERSION=1.2.3", f"-DOUTPUT={output}", "-P", ROOT / "cmake/version.cmake")
    return re.search(r'return "(.*)";', output.read_text())[1]


def test_the_version_names_the_commit(tmp_path):
    source, output = tmp_path / "source", tmp_path / "version.cpp"
    source.mkdir()
    (source / "file").write_text("1")
    assert version_of(source, output) == "1.2.3"  # from a tarball
    git(source, "init", "-q")
    git(source, "add", "file")
    git(source, "commit", "-q", "-m", "m")
    git(source, "tag", "-a", "some-tag", "-m", "m")
    commit = git(source, "rev-parse", "HEAD")
    assert re.fullmatch(rf"1\.2\.3\+{commit[:8]}", version_of(source, output))
    (source / "untracked").write_text("")
    assert version_of(source, output) == f"1.2.3+{commit[:8]}"
    (source / "file").write_text("2")
    assert version_of(source, output) == f"1.2.3+{commit[:8]}-dirty"
    (source / "unpacked").mkdir()
    assert version_of(source / "unpacked", output) == "1.2.3"  # a tarball, inside another repository


def test_an_unchanged_version_compiles_nothing(tmp_path):
    output = tmp_path / "version.cpp"
    version_of(tmp_path, output)
    os.utime(output, (1, 1))
    version_of(tmp_path, output)
    assert output.stat().st_mtime == 1


def commands(build):
    return {entry["file"]: entry["command"] for entry in json.loads((build / "compile_commands.json").read_text())}


def test_tests_and_benchmarks_can_be_left_out(tmp_path):
    only_theirs = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("GTest", "benchmark", "rapidcheck")]
    run("cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", "-DQUIRE_TESTS=OFF", "-DQUIRE_BENCHMARKS=OFF", *only_theirs)
    built = commands(tmp_path)
    folders = {pathlib.Path(file).relative_to(ROOT).parts[0] for file in built if not file.startswith(str(tmp_path))}
    assert folders == {"src"} and str(ROOT / "src/cli/main.cpp") in built
    assert not any("-Werror" in command for command in built.values())


@pytest.mark.skipif(BUILD.parent.name != "build", reason="QUIRE_BIN is not of a preset")
def test_warnings_are_errors_in_the_presets():
    assert all("-Werror" in command for command in commands(BUILD).values())
    assert {"tests", "bench", "src"} <= {pathlib.Path(file).relative_to(ROOT).parts[0] for file in commands(BUILD)}
