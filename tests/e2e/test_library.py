"""libquire as it is installed: a program that knows nothing of this repository is built with it, and answers as quire does."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from test_cli import DEMO, QUIRE, ROOT, quire

BUILD = pathlib.Path(QUIRE).resolve().parent
EXAMPLE = ROOT / "examples/embed.cpp"
PROMPT = "Once upon a time"
COMPILE = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror"]


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """What is installed, moved: none of it may depend on the place."""
    folder = tmp_path_factory.mktemp("library")
    run("cmake", "--install", BUILD, "--component", "library", "--prefix", folder / "first")
    return (folder / "first").rename(folder / "prefix")


@pytest.fixture(scope="module")
def library(prefix):
    (link,) = prefix.glob("lib*/libquire.so")
    return link


@pytest.fixture
def source(tmp_path):
    shutil.copy(EXAMPLE, tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def expected():
    done = quire("run", DEMO, "-p", PROMPT, "--max-tokens", 60, "--temperature", 0)
    assert len(done.stdout.split()) > 20
    return done.stdout


def check_answer(program, library, expected):
    env = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([program, DEMO, PROMPT], capture_output=True, env=env, timeout=120)
    assert done.returncode == 0 and done.stdout == expected, done.stderr.decode()
    assert re.fullmatch(rb"\d+ tokens read, 60 written\n", done.stderr)
    missing = subprocess.run([program, "/no/such/model", PROMPT], capture_output=True, env=env)
    assert missing.returncode == 1 and missing.stdout == b"" and missing.stderr.count(b"\n") == 1
    assert missing.stderr.startswith(b"embed: /no/such/model: no such file or directory")


def test_find_package(prefix, library, source, expected):
    (source / "CMakeLists.txt").write_text("""
        cmake_minimum_required(VERSION 3.25)
        project(embed LANGUAGES CXX)
        find_package(quire 0.1 REQUIRED)
        add_executable(embed embed.cpp)
        target_link_libraries(embed PRIVATE quire::quire)
    """)
    build = source / "build"
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    commands = json.loads((build / "compile_commands.json").read_text())
    assert len(commands) == 1 and str(ROOT) not in json.dumps(commands)
    run("cmake", "--build", build)
    check_answer(build / "embed", library, expected)


def test_pkg_config(prefix, library, source, expected):
    env = {**os.environ, "PKG_CONFIG_PATH": str(library.parent / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "quire", env=env).split()
    assert str(ROOT) not in " ".join(flags) and run("pkg-config", "--modversion", "quire", env=env).startswith("0.1.")
    run(*COMPILE, "embed.cpp", "-o", "embed", *flags, cwd=source)
    check_answer(source / "embed", library, expected)


def test_another_minor_version_is_not_found(prefix, source):
    (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(x LANGUAGES CXX)\nfind_package(quire 0.2 REQUIRED)\n")
    done = subprocess.run(["cmake", "-S", source, "-B", source / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and re.search(r"quireConfig.cmake, version:\s+0\.1\.", done.stderr)


def test_what_is_installed(prefix, library):
    version = library.resolve().name.removeprefix("libquire.so.")
    folder = library.parent.relative_to(prefix).as_posix()
    files = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if not path.is_dir()}
    assert {path for path in files if "cmake" not in path} == {
        "include/quire/quire.h", f"{folder}/pkgconfig/quire.pc",
        *(f"{folder}/libquire.so{suffix}" for suffix in ("", ".0.1", f".{version}"))}
    named = re.search(r"SONAME.*\[(.*)\]", run("readelf", "--dynamic", library))
    assert named[1] == "libquire.so.0.1"


def test_the_header_needs_nothing_but_the_standard_library(prefix):
    header = prefix / "include/quire/quire.h"
    text = header.read_text()
    assert '#include "' not in text and re.findall(r"#include <(.*[./].*)>", text) == []
    including = '#include <quire/quire.h>\n'
    run(*COMPILE, "-I", prefix / "include", "-fsyntax-only", "-x", "c++", "-", input=including)


def test_only_the_names_of_the_header_are_exported(prefix, library):
    text = (prefix / "include/quire/quire.h").read_text()
    exported = run("nm", "--dynamic", "--defined-only", "--demangle", library).splitlines()
    names = {re.sub(r"^(vtable|typeinfo|typeinfo name) for ", "", line.split(" ", 2)[2]).split("(")[0] for line in exported}
    assert "quire::Model::Model" in names and "quire::Exception" in names
    public = set(re.findall(r"^(?:class QUIRE_API|QUIRE_API void) (\w+)", text, re.M))
    assert public == {"Model", "Stream", "Exception", "set_log"}
    for name in names:
        parts = re.sub(r"\[abi:\w+\]", "", name).split("::")
        assert parts[0] == "quire" and parts[1] in public and all(part.lstrip("~") in text for part in parts), name
