"""A quire server of the storm: started on a free port of loopback, watched through /proc, always ended."""
import asyncio
import atexit
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import time

import wire

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/llama-quire-stories-5m"
START_TIME = 180  # seconds that a start may take on a slow machine
STOP_TIME = 90
MIB = 1 << 20

_alive = set()
_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


@atexit.register
def kill_all():
    """Whatever ended the program: no server outlives it."""
    for process in list(_alive):
        process.kill()
        process.wait()
        _alive.discard(process)


class StartFailed(Exception):
    pass


def help_of(quire, command="serve"):
    return subprocess.run([quire, command, "--help"], capture_output=True, text=True, timeout=60).stdout


class Served:
    """`flags` that are a tuple (name, value, ...) are given only where the program knows their name."""

    def __init__(self, context, *flags, name="server", cgroup=None, model=MODEL):
        self.context = context
        command = [context.quire, "serve", str(model), "--port", "0"]
        for flag in flags:
            if not isinstance(flag, tuple):
                command.append(str(flag))
            elif context.knows(flag[0]):
                command += map(str, flag)
        self.command = command
        self.log_path = context.folder / f"{name}.log"
        self.log = open(self.log_path, "w+b")
        self.cgroup = cgroup
        self.port = None
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True, preexec_fn=self._before_exec)
        _alive.add(self.process)

    def _before_exec(self):
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if self.cgroup:
            (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))

    def said(self):
        return self.log_path.read_text(errors="replace")

    async def ready(self, patience=START_TIME):
        """Waits until it answers; throws StartFailed."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            listens = re.search(r"listens on http://[^ ]*:(\d+)", self.said())
            if listens:
                self.port = int(listens[1])
                answer = await wire.get(self.port, "/health")
                if answer.status != 200:
                    raise StartFailed(f"/health answered {answer.status}")
                return self
            if self.process.poll() is not None:
                raise StartFailed(f"ended with {self.process.returncode}: {self.said()[-500:]}")
            await asyncio.sleep(0.01)
        raise StartFailed(f"not ready in {patience} s: {self.said()[-500:]}")

    @property
    def lives(self):
        return self.process.poll() is None

    def memory(self):
        """Resident bytes and their peak since the last forget_peak()."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        now, peak = (int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M)[1]) * 1024 for name in ("VmRSS", "VmHWM"))
        return now, peak

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def num_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    async def metrics(self, patience=wire.PATIENCE):
        """The sum of each metric over its labels; of request_success_total by reason too."""
        answer = await wire.get(self.port, "/metrics", patience=patience)
        values = {}
        for line in answer.body.decode().splitlines():
            if not line or line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            reason = re.search(r'finished_reason="(\w+)"', name)
            key = name.split("{")[0] + (f":{reason[1]}" if reason else "")
            values[key] = values.get(key, 0.0) + float(value)
        return values

    async def comes_to_rest(self, patience=wire.PATIENCE):
        """Waits until nothing runs, nothing waits and no block is held; what was left over otherwise."""
        names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]
        end = time.monotonic() + patience
        while True:
            try:
                now = await self.metrics()
                left = {name: now[name] for name in names if now[name] != 0}
            except (OSError, wire.Broken, KeyError) as failed:
                left = {"/metrics": repr(failed)}
            if not left or time.monotonic() > end or not self.lives:
                return left if self.lives else {"ended with": self.process.returncode}
            await asyncio.sleep(0.05)

    async def stop(self, how=signal.SIGTERM):
        """Ends it; its exit status, negative for a signal."""
        if self.lives:
            self.process.send_signal(how)
        end = time.monotonic() + STOP_TIME
        while self.lives and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if self.lives:
            self.process.kill()
        status = self.process.wait()
        _alive.discard(self.process)
        self.log.close()
        return status

    async def __aenter__(self):
        try:
            return await self.ready()
        except BaseException:
            await self.stop(signal.SIGKILL)
            raise

    async def __aexit__(self, *unused):
        await self.stop()
