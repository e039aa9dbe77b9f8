#!/usr/bin/env python3
"""Makes a Debian package of a build: `./dev package`.

package.py BUILD FOLDER    writes FOLDER/quire_VERSION_ARCHITECTURE.deb and prints its path. BUILD must have the targets quire and
                           quire_docs; nothing is built here.

The package's version has the date of the commit, so that versions increase: 0.1.0+git202601021504.0123abcd-1. The same build
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


def install(build, root, version, maintainer, seconds):
    subprocess.run(["cmake", "--install", build, "--prefix", "/usr", "--component", "program", "--strip"], check=True,
                   env=dict(os.environ, DESTDIR=str(root)), stdout=subprocess.DEVNULL)
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
    compress(doc / "CHANGELOG.md", doc / "changelog.gz")
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))
    entry = doc / "changelog.Debian"
    entry.write_text(f"quire ({version}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n"
                     f" -- {maintainer}  {date}\n")
    compress(entry)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        os.utime(path, (seconds, seconds))


def dependencies(work, program):
    """The packages of the shared libraries that the program links."""
    (work / "debian/control").write_text("Source: quire\n\nPackage: quire\nArchitecture: any\n")
    return said("dpkg-shlibdeps", "-O", f"-e{program}", cwd=work).removeprefix("shlibs:Depends=")


def write_control(root, facts):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    control = root / "DEBIAN"
    facts["SIZE"] = str(sum(-(-path.stat().st_size // 1024) for path in files))
    text = (DEBIAN / "control").read_text()
    (control / "control").write_text(re.sub(r"@(\w+)@", lambda found: facts[found[1]], text))
    names = [path.relative_to(root).as_posix() for path in files]
    conffiles = [f"/{name}\n" for name in names if name.startswith("etc/")]
    (control / "conffiles").write_text("".join(conffiles))
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {name}\n" for path, name in zip(files, names)
            if not name.startswith("etc/")]
    (control / "md5sums").write_text("".join(sums))
    for script in ("postinst", "prerm", "postrm"):
        shutil.copy(DEBIAN / script, control)
        (control / script).chmod(0o755)


def main():
    build, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    version, seconds = version_of(build / "quire")
    architecture = said("dpkg", "--print-architecture")
    maintainer = f"{os.environ.get('DEBFULLNAME', 'quire maintainers')} <{os.environ.get('DEBEMAIL', 'quire@example.org')}>"
    package = folder / f"quire_{version}_{architecture}.deb"
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        root = work / "debian/quire"  # where dpkg-shlibdeps expects a package
        (root / "DEBIAN").mkdir(parents=True)
        install(build, root, version, maintainer, seconds)
        write_control(root, {"VERSION": version, "ARCHITECTURE": architecture, "MAINTAINER": maintainer,
                             "DEPENDS": dependencies(work, root / "usr/bin/quire")})
        # gzip: xz takes six times as long for a file that is a quarter smaller.
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", root, package], check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, SOURCE_DATE_EPOCH=str(seconds)))
    print(package)


if __name__ == "__main__":
    main()
