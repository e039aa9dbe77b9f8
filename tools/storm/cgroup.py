"""A memory cgroup of one's own, version 1 or 2."""
import pathlib
import time

MOUNT = pathlib.Path("/sys/fs/cgroup")


class Cgroup:
    def __init__(self, folder, limit_file, peak_file, events_file):
        self.folder, self.limit_file, self.peak_file, self.events_file = folder, limit_file, peak_file, events_file

    def peak(self):
        """Bytes at most, or None where the kernel does not tell."""
        path = self.folder / self.peak_file
        return int(path.read_text()) if path.exists() else None

    def kills(self):
        for line in (self.folder / self.events_file).read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self):
        for _ in range(100):
            try:
                return self.folder.rmdir()
            except OSError:  # what ended in it is not quite gone
                time.sleep(0.1)


def own_folder(controller):
    """Where this process is in the hierarchy of a controller ("": version 2); None if it is in none."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if (controller in controllers.split(",")) if controller else controllers == "":
            return path.lstrip("/")
    return None


def make(name, limit):
    """One below this process's own, with so many bytes; throws OSError where it may not be made."""
    version_1 = own_folder("memory")
    if version_1 is not None:
        cgroup = Cgroup(MOUNT / "memory" / version_1 / name, "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
        folders = [cgroup.folder]
    else:
        # A group with processes in it gives no memory controller to those below it: then beside it.
        own = MOUNT / (own_folder("") or "")
        cgroup = Cgroup(None, "memory.max", "memory.peak", "memory.events")
        folders = [own / name, own.parent / name]
    failed = OSError("no memory controller")
    for folder in folders:
        if MOUNT not in folder.parents:
            continue
        try:
            folder.mkdir()
        except OSError as why:
            failed = why
            continue
        cgroup.folder = folder
        try:
            (folder / cgroup.limit_file).write_text(str(limit))
            return cgroup
        except OSError as why:
            failed = why
            cgroup.remove()
    raise failed
