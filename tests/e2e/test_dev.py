"""./dev says what it will install, and stops where it may not: on machines played by a PATH of its own."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What ./dev itself needs.
PRESENT = "bash chmod cmp cp dirname echo env grep mkdir xargs".split()


@pytest.fixture
def machine(tmp_path):
    """Runs ./dev setup, in a copy, where all programs are those of `stubs` (name -> shell script) and a few of the system."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "repo/tests/e2e").mkdir(parents=True)
    shutil.copy(ROOT / "dev", tmp_path / "repo")
    (tmp_path / "repo/tests/e2e/requirements.txt").write_text("first-thing==1.0\nsecond-thing==2.0\n")
    for name in PRESENT:
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)

    def setup(**stubs):
        for name, script in stubs.items():
            path = tmp_path / "bin" / name.replace("_", "-")
            path.write_text(f"#!/bin/bash\n{script}\n")
            path.chmod(0o755)
        done = subprocess.run([tmp_path / "repo/dev", "setup"], env={"PATH": str(tmp_path / "bin")}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        return done.returncode, done.stderr
    return setup


NONE_INSTALLED = "exit 1"
ALL_INSTALLED = "echo 'install ok installed'"
AS_ROOT = "echo 0"
AS_USER = "echo 1000"
NEVER = "echo 'was called' >&2; exit 99"


def test_another_system_than_debian(machine):
    code, said = machine(id=AS_ROOT)
    assert code == 1 and said.startswith("./dev: apt-get is missing") and said.count("\n") == 1
    assert "libboost1.81-dev" in said and "ninja-build" in said


@pytest.mark.parametrize("stubs", [{}, {"sudo": "exit 1"}], ids=["no sudo", "sudo asks for a password"])
def test_no_right_to_install(machine, stubs):
    code, said = machine(dpkg_query=NONE_INSTALLED, apt_get=NEVER, id=AS_USER, **stubs)
    assert code == 1 and said.startswith("./dev: these Debian packages are missing, and only root may install them: g++ cmake")
    assert "called" not in said and said.count("\n") == 1


def test_packages_are_named_before_they_are_installed(machine):
    code, said = machine(dpkg_query="[ $3 = cmake ] || echo 'install ok installed'", id=AS_ROOT,
                         apt_get='echo "apt-get $*" >&2; [ $1 = update ]')
    lines = said.splitlines()
    assert lines[0].endswith("== installing Debian packages: cmake\033[0m") and lines[1] == "apt-get update -qq"
    assert lines[2] == "apt-get install -y -qq --no-install-recommends cmake"
    assert code == 1 and lines[3].startswith("./dev: apt-get could not install these Debian 12 packages") and lines[3].endswith(": cmake")


def test_pip_without_a_network(machine):
    venv = 'mkdir -p "$3/bin"; printf "#!/bin/bash\\necho no route >&2; exit 1\\n" >"$3/bin/pip"; cp "$3/bin/pip" "$3/bin/python"; ' \
           'chmod +x "$3"/bin/*'
    code, said = machine(dpkg_query=ALL_INSTALLED, id=AS_ROOT, apt_get=NEVER, python3=venv)
    lines = said.splitlines()
    assert code == 1 and lines[1].endswith("== installing in build/venv: first-thing second-thing\033[0m") and lines[2] == "no route"
    assert lines[3].startswith("./dev: pip could not install in build/venv (see its output above): first-thing second-thing")
    assert "network" in lines[3] and len(lines) == 4


def test_all_is_there(machine, tmp_path):
    folder = tmp_path / "repo/build/venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to("/bin/true")
    shutil.copy(tmp_path / "repo/tests/e2e/requirements.txt", folder / "installed-tests-e2e-requirements.txt")
    assert machine(dpkg_query=ALL_INSTALLED, id=NEVER, apt_get=NEVER, python3=NEVER) == (0, "")


def test_demo_with_the_page(tmp_path):
    """It says where it listens, shows the page over the demo model with "Make it tight", and Ctrl-C ends it."""
    said = tmp_path / "said"
    with open(said, "wb") as out:
        demo = subprocess.Popen([ROOT / "dev", "demo", "--page", "--port", "0"], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                start_new_session=True)
    try:
        address = wait_for(lambda: re.search(r"listens on (http://[\d.:]+)", said.read_text()), demo)[1]
        assert "Open in a browser the address" in said.read_text()
        with urllib.request.urlopen(address + "/", timeout=10) as found:
            assert found.headers["Content-Type"] == "text/html; charset=utf-8" and b"/page/main.js" in found.read()
        with urllib.request.urlopen(address + "/v1/models", timeout=10) as found:
            assert json.load(found)["data"][0]["id"] == "llama-quire-stories-5m"
        if shutil.which("chromium") and shutil.which("chromedriver"):
            make_it_tight(address, tmp_path)
    finally:
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
        try:
            code = demo.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(demo.pid, signal.SIGKILL)
            raise
    assert code == 0, said.read_text()
    with pytest.raises(OSError):
        urllib.request.urlopen(address + "/", timeout=10)


def wait_for(holds, process, patience=600):
    end = time.monotonic() + patience  # it may have to build
    while not (found := holds()):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    return found


def make_it_tight(address, tmp_path):
    look_at = pytest.importorskip("browser")
    server = type("Demo", (), {"url": address})
    with look_at.Page(server, tmp_path) as page:
        look_at.look(page)
        button = page.one("#look .tight button")
        page.until(lambda: button.text == "Make it tight")
        button.click()
        for number in ["Preemptions seen", "Evictions seen", "Of them shared", "Host blocks"]:
            page.until(lambda number=number: look_at.numbers(page).get(number, "0")[0] != "0")
        assert page.complaints() == []
