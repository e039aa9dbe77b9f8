#!/usr/bin/env python3
"""Makes Debian packages of a build: `./dev package`.

package.py BUILD FOLDER    writes FOLDER/NAME_VERSION_ARCHITECTURE.deb for the program (quire), the library (libquire0.1) and what
                           programs are built with (libquire-dev), and prints the paths. BUILD must have the targets quire,
                           quire_docs and quire_shared; nothing is built here.

The packages' version has the date of the commit, so that versions increase: 0.1.0+git202601021504.0123abcd-1. The same build
gives the same bytes. DEBFULLNAME and DEBEMAIL name the maintainer.
"""
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEBIAN = ROOT / "packaging/debian"


def said(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout.strip()


def version_of(program):
    """The package's version, and the time of the program's commit (without one: of the changelog's last change)."""
    version = said(program, "--version")
    number, _, commit = version.partition("+")
    if not commit:
        return f"{number}-1", int((ROOT / "CHANGELOG.md").stat().st_mtime)
    of_commit = ("git", "-C", ROOT, "show", "-s", "--format=%ct", commit.removesuffix("-dirty"))
    seconds = int(said(*of_commit))
    date = time.strftime("%Y%m%d%H%M", time.gmtime(seconds))
    return f"{number}+git{date}.{commit.replace('-', '.')}-1", seconds


def compress(path, to=None):
    target = to or path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()


def cmake_install(build, root, component):
    subprocess.run(["cmake", "--install", build, "--prefix", "/usr", "--component", component, "--strip"], check=True,
                   env=dict(os.environ, DESTDIR=str(root)), stdout=subprocess.DEVNULL)


def install_program(build, root):
    cmake_install(build, root, "program")
    (root / "etc/default").mkdir(parents=True)
    shutil.copy(DEBIAN / "default", root / "etc/default/quire")
    # where Debian 12 has units
    (root / "lib/systemd").mkdir(parents=True)
    (root / "usr/lib/systemd/system").rename(root / "lib/systemd/system")
    (root / "usr/lib/systemd").rmdir()
    (root / "usr/lib").rmdir()
    for page in (root / "usr/share/man/man1").iterdir():
        compress(page)
    doc = root / "usr/share/doc/quire"
    (doc / "LICENSE").unlink()  # Debian has the text, see copyright
    (doc / "CHANGELOG.md").unlink()
    for script in ("postinst", "prerm", "postrm"):
        shutil.copy(DEBIAN / script, root / "DEBIAN")
        (root / "DEBIAN" / script).chmod(0o755)


def install_library(build, root, dev_root, soversion, version):
    """What CMake has as one component is two packages, so that the libraries of two versions can be installed."""
    cmake_install(build, dev_root, "library")
    (root / "usr/lib").mkdir(parents=True)
    for path in (dev_root / "usr/lib").glob("libquire.so.*"):
        path.rename(root / "usr/lib" / path.name)
    (root / "DEBIAN/shlibs").write_text(f"libquire {soversion} libquire{soversion} (>= {version})\n")
    (root / "DEBIAN/triggers").write_text("activate-noawait ldconfig\n")
    examples = dev_root / "usr/share/doc/libquire-dev/examples"
    examples.mkdir(parents=True)
    shutil.copy(ROOT / "examples/embed.cpp", examples)


def add_documents(root, package, facts, seconds):
    doc = root / "usr/share/doc" / package
    doc.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "packaging/copyright", doc)
    shutil.copy(ROOT / "CHANGELOG.md", doc)
    compress(doc / "CHANGELOG.md", doc / "changelog.gz")
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))
    entry = doc / "changelog.Debian"
    entry.write_text(f"quire ({facts['VERSION']}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n"
                     f" -- {facts['MAINTAINER']}  {date}\n")
    compress(entry)
    for path in root.rglob("*"):
        if path.is_symlink():
            os.utime(path, (seconds, seconds), follow_symlinks=False)
            continue
        is_program = path.is_dir() or os.access(path, os.X_OK) and ".so." not in path.name
        path.chmod(0o755 if is_program else 0o644)
        os.utime(path, (seconds, seconds))


def dependencies(work, program):
    """The packages of the shared libraries that the program or library links."""
    (work / "debian/control").write_text("Source: quire\n\nPackage: quire\nArchitecture: any\n")
    return said("dpkg-shlibdeps", "-O", f"-e{program}", cwd=work).removeprefix("shlibs:Depends=")


def write_control(root, template, facts):
    control = root / "DEBIAN"
    files = sorted(path for path in root.rglob("*") if path.is_file() and control not in path.parents)
    facts["SIZE"] = str(sum(-(-path.lstat().st_size // 1024) for path in files))
    text = (DEBIAN / template).read_text()
    (control / "control").write_text(re.sub(r"@(\w+)@", lambda found: facts[found[1]], text))
    names = [path.relative_to(root).as_posix() for path in files]
    conffiles = [f"/{name}\n" for name in names if name.startswith("etc/")]
    if conffiles:
        (control / "conffiles").write_text("".join(conffiles))
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {name}\n" for path, name in zip(files, names)
            if not name.startswith("etc/") and not path.is_symlink()]
    (control / "md5sums").write_text("".join(sums))


def write_package(root, path, seconds):
    # gzip: xz takes six times as long for a file that is a quarter smaller.
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", root, path], check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, SOURCE_DATE_EPOCH=str(seconds)))
    print(path)


def main():
    build, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    version, seconds = version_of(build / "quire")
    soversion = ".".join(version.split(".")[:2])
    facts = {
        "VERSION": version,
        "SOVERSION": soversion,
        "ARCHITECTURE": said("dpkg", "--print-architecture"),
        "MAINTAINER": f"{os.environ.get('DEBFULLNAME', 'quire maintainers')} <{os.environ.get('DEBEMAIL', 'quire@example.org')}>",
    }
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        library = f"libquire{soversion}"
        roots = {name: work / "debian" / name for name in ("quire", library, "libquire-dev")}  # where dpkg-shlibdeps expects them
        for root in roots.values():
            (root / "DEBIAN").mkdir(parents=True)
        install_program(build, roots["quire"])
        install_library(build, roots[library], roots["libquire-dev"], soversion, version)
        linking = {"quire": "usr/bin/quire", library: f"usr/lib/libquire.so.{soversion}"}
        for name, root in roots.items():
            add_documents(root, name, facts, seconds)
            depends = dependencies(work, root / linking[name]) if name in linking else ""
            template = "control." + ("libquire" if name == library else name)
            write_control(root, template, {**facts, "DEPENDS": depends})
            write_package(root, folder / f"{name}_{version}_{facts['ARCHITECTURE']}.deb", seconds)


if __name__ == "__main__":
    main()
