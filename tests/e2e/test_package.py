"""The Debian packages of the build that is there: installed into an empty root, they serve, and all they bring works."""
import ctypes
import gzip
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

import server
from test_cli import DEMO, QUIRE, ROOT, quire

BUILD = pathlib.Path(QUIRE).resolve().parent
TOOLS = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}  # dpkg asks for ldconfig


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


NAMES = ["quire", "libquire0.1", "libquire-dev"]


def packages_in(folder):
    return [pathlib.Path(line) for line in run(sys.executable, ROOT / "tools/package.py", BUILD, folder).splitlines()]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    return packages_in(tmp_path_factory.mktemp("package"))


@pytest.fixture
def package(packages):
    """That of the program."""
    return packages[0]


def dpkg(root, *args):
    return run("fakeroot", "dpkg", f"--root={root}", "--force-script-chrootless", f"--log={root}/dpkg.log", *args, env=TOOLS)


@pytest.fixture(scope="module")
def root(packages, tmp_path_factory):
    """A root with nothing in it but the packages, whose dependencies dpkg has found among the packages of this machine."""
    root = tmp_path_factory.mktemp("root")
    for folder in ("info", "updates"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    shutil.copy("/var/lib/dpkg/status", root / "var/lib/dpkg/status")
    dpkg(root, "--install", *packages)
    return root


def test_the_program_says_what_the_package_is(package, root):
    version = run(root / "usr/bin/quire", "--version").strip()
    assert version == quire("--version").stdout.decode().strip()
    number, _, commit = version.partition("+")
    if (ROOT / ".git").exists():
        assert re.fullmatch(r"[0-9a-f]{8,}(-dirty)?", commit)
        run("git", "-C", ROOT, "cat-file", "-e", commit.removesuffix("-dirty"))
    named = run("dpkg-deb", "--field", package, "Version").strip()
    assert named.startswith(number) and named.endswith(f"{commit.replace('-', '.')}-1")


def deny_memory_that_is_written_and_executed():
    """As the service's MemoryDenyWriteExecute does; kernels before 6.3 have no such switch."""
    pr_set_mdwe, refuse_exec_gain = 65, 1
    ctypes.CDLL(None).prctl(pr_set_mdwe, refuse_exec_gain, 0, 0, 0)


def test_it_serves_from_there(root, monkeypatch):
    from openai import OpenAI
    monkeypatch.setattr(server, "QUIRE", str(root / "usr/bin/quire"))
    served = server.QuireServer(preexec_fn=deny_memory_that_is_written_and_executed)
    try:
        client = OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
        answer = client.completions.create(model=DEMO.name, prompt="Once upon a time", max_tokens=24, temperature=0)
        expected = quire("run", DEMO, "-p", "Once upon a time", "--max-tokens", 24, "--temperature", 0).stdout.decode()
        assert len(answer.choices[0].text.split()) > 10 and answer.choices[0].text.strip() in expected
    finally:
        assert served.stop() == 0


COMMANDS = [line.split() for line in """

serve
run
chat
bench
bench latency
bench throughput
bench serve
bench ops
simulate
calibrate
explain
inspect
plan
logits
perplexity
tokenize
detokenize
render
convert
make-model""".splitlines()[1:]]


def test_there_is_a_page_for_each_command_and_no_other(root):
    pages = {path.name for path in (root / "usr/share/man/man1").iterdir()}
    assert pages == {"-".join(["quire", *path]) + ".1.gz" for path in COMMANDS}


@pytest.mark.parametrize("path", COMMANDS, ids="-".join)
def test_man_pages_say_what_help_says(root, path):
    page = gzip.decompress((root / "usr/share/man/man1" / ("-".join(["quire", *path]) + ".1.gz")).read_bytes()).decode()
    rendered = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-bou", "-rLL=100n"], input=page, capture_output=True, text=True)
    assert rendered.returncode == 0 and rendered.stderr == ""
    text = " ".join(rendered.stdout.split())
    help_text = quire(*path, "--help").stdout.decode()
    heads = re.findall(r"^  ((?:-\w,)?--[^\s=:{]\S*|-\w(?= ))", help_text, re.M)
    assert heads
    for name in (name for head in heads for name in head.split(",")):
        assert re.search(rf"(^| ){re.escape(name)}(,| |$)", text), f"{name} is not in the page"
    # Every word of the help but those of its headings, in whatever lines.
    said = set(re.findall(r"[\w/-]{4,}", text))
    heading = {"Usage", "Options", "Arguments", "Commands", "Subcommands", "serves"}
    missing = set(re.findall(r"[\w/-]{4,}", help_text)) - said - heading
    assert not missing


def complete(script, line):
    """What the function for `quire` answers at the end of the line."""
    words = re.findall(r"=|[^\s=]+", line) + ([""] if line.endswith(" ") else [])
    program = f'source "{script}"; compopt() {{ :; }}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quire; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return set(run("bash", "--norc", "-euc", program, "bash", *words).split())


@pytest.fixture
def script(root):
    return root / "usr/share/bash-completion/completions/quire"


def test_completion(script, tmp_path, monkeypatch):
    run("bash", "-n", script)
    assert complete(script, "quire ") == {path[0] for path in COMMANDS if len(path) == 1} | {"help"}
    assert complete(script, "quire s") == {"serve", "simulate"}
    assert complete(script, "quire bench ") == {"latency", "throughput", "serve", "ops"}
    assert complete(script, "quire help bench l") == {"latency"}
    assert complete(script, "quire serve --max-n") == {"--max-num-seqs", "--max-num-batched-tokens"}
    assert complete(script, "quire bench serve --con") == {"--concurrency"}
    assert complete(script, "quire simulate --pack") == set()
    assert complete(script, "quire serve --device ") == complete(script, "quire serve --device=") == {"cpu", "cuda", "auto", "sim"}
    assert complete(script, "quire serve --device=s") == {"sim"}
    assert complete(script, "quire run m --eviction-policy l") == {"lru", "lfu"}
    assert complete(script, "quire make-model ti") == {"tiny"}
    assert complete(script, "quire serve --port ") == set()


def test_completion_of_paths(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("weights.gguf", "words.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "wide").mkdir()
    assert complete(script, "quire serve ") == complete(script, "quire serve --threads 2 --no-mmap w") == {"weights.gguf", "wide"}
    assert complete(script, "quire serve --pack-cache w") == {"wide"}
    assert complete(script, "quire serve --step-trace w") == {"weights.gguf", "words.txt", "wide"}
    assert complete(script, "quire perplexity wide w") == {"weights.gguf", "words.txt", "wide"}
    assert complete(script, "quire serve wide w") == set()


def test_every_flag_is_completed(script):
    for path in COMMANDS:
        heads = re.findall(r"^  (?:-\w,)?(--[^\s=:{]\S*)", quire(*path, "--help").stdout.decode(), re.M)
        assert complete(script, f"quire {' '.join(path)} --") == {flag for head in heads for flag in head.split(",")}


def test_a_shell_completes(script):
    """Not the function alone: what bash's own line editor makes of it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "$ "})
    try:
        os.write(terminal, f"source {script}\nquire() {{ printf '<%s>' \"$@\"; }}\n".encode())
        os.write(terminal, b"quire serve --evic\tqueue\t\n")
        seen, end = b"", time.monotonic() + 20
        while b"<queue-lru>" not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 4096)
        assert b"<serve><--eviction-policy><queue-lru>" in seen, seen.decode()
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def test_the_unit_verifies(root, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    unit = (root / "lib/systemd/system/quire.service").read_text()
    assert "ExecStart=/usr/bin/quire serve ${QUIRE_MODEL}" in unit
    (tmp_path / "quire.service").write_text(unit.replace("/usr/bin/quire", f"{root}/usr/bin/quire").replace("Documentation=", "#"))
    run("systemd-analyze", "verify", tmp_path / "quire.service")
    assert (root / "etc/default/quire").read_text().count("\nQUIRE_MODEL=\n") == 1


# Libraries whose headers only declare what the shared library has, and the compiler's own.
NOT_EMBEDDED = {"libc6-dev", "libstdc++-12-dev", "libgcc-12-dev", "linux-libc-dev", "zlib1g-dev", "libssl-dev", "libpcre2-dev",
                "libutf8proc-dev", "libxxhash-dev", "libedit-dev", "libbsd-dev"}


def test_the_licences_name_whatever_is_compiled_in(root):
    text = (root / "usr/share/doc/quire/copyright").read_text()
    headers, ours = {}, False
    for line in run("ninja", "-C", BUILD, "-t", "deps").splitlines():
        if not line.startswith(" "):
            ours = line.startswith("src/") and "/quire_cuda.dir/" not in line  # that library is in no package
        elif ours and line.strip().startswith("/usr/"):
            headers[pathlib.PurePath(line.strip()).parent] = line.strip()  # one of each folder
    scripts = re.findall(r"^QUIRE_PAGE_\w+_JS:FILEPATH=(/usr/.+)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    packages = {line.split(":")[0] for line in run("dpkg", "--search", *headers.values(), *scripts).splitlines()}
    assert {"libboost1.81-dev", "libjs-katex"} <= packages
    unnamed = {name for name in packages - NOT_EMBEDDED if name not in text}
    assert not unnamed, "packaging/copyright has no licence of what these packages compile into the program"


def test_the_same_build_makes_the_same_packages(packages, tmp_path):
    again = packages_in(tmp_path)
    assert [path.name.split("_")[0] for path in packages] == NAMES
    assert [path.name for path in again] == [path.name for path in packages]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in packages]


def files_of(root, package):
    listed = (root / f"var/lib/dpkg/info/{package}.list").read_text().splitlines()
    return {path for path in listed if not (root / path.lstrip("/")).is_dir() or (root / path.lstrip("/")).is_symlink()}


def test_the_library_is_apart_from_what_builds_with_it(packages, root):
    """So that libraries of two versions can be installed. tests/e2e/test_library.py builds a program with the same files."""
    def documents(name):
        return {f"/usr/share/doc/{name}/{file}" for file in ("changelog.gz", "changelog.Debian.gz", "copyright")}
    (library,) = {path.name for path in (root / "usr/lib").glob("libquire.so.*.*.*")}
    assert files_of(root, "libquire0.1") == {f"/usr/lib/{library}", "/usr/lib/libquire.so.0.1", *documents("libquire0.1")}
    dev = files_of(root, "libquire-dev")
    assert {"/usr/include/quire/quire.h", "/usr/lib/libquire.so", "/usr/lib/pkgconfig/quire.pc",
            "/usr/lib/cmake/quire/quireConfig.cmake", "/usr/share/doc/libquire-dev/examples/embed.cpp"} <= dev
    assert not {path for path in dev if ".so." in path} and (root / "usr/lib/libquire.so").is_file()
    version = run("dpkg-deb", "--field", packages[1], "Version").strip()
    assert run("dpkg-deb", "--field", packages[2], "Depends").strip() == f"libquire0.1 (= {version})"
    assert re.search(r"\blibstdc\+\+6 \(", run("dpkg-deb", "--field", packages[1], "Depends"))
    assert "libssl" not in run("dpkg-deb", "--field", packages[1], "Depends")  # there is no server in it


def test_a_purge_leaves_nothing(root):
    """Last: it takes the packages away."""
    (root / "var/lib/quire").mkdir()
    dpkg(root, "--purge", *NAMES)
    left = [path for path in root.rglob("*") if path.is_file() and not path.is_relative_to(root / "var/lib/dpkg")]
    assert left == [root / "dpkg.log"] and not (root / "var/lib/quire").exists()
