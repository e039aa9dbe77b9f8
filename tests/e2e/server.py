"""A quire server for the tests: started on a free port, ended with SIGTERM."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUIRE = os.environ.get("QUIRE_BIN", str(ROOT / "build/release/quire"))
MODEL = ROOT / "models/llama-quire-stories-5m"
MODEL_NAME = MODEL.name


class QuireServer:
    def __init__(self, *flags, model=MODEL, port=0, **popen):
        """`popen`: what else subprocess.Popen is given."""
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [QUIRE, "serve", str(model), "--port", str(port), *map(str, flags)],
            cwd=ROOT, stdout=self.log, stderr=self.log, **popen)
        try:
            self.port = self._wait_until_ready()
        except BaseException:
            self.process.kill()
            raise

    def _wait_until_ready(self, patience=120):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            said = re.search(r"listens on http://[^ ]*:(\d+)", self.output())
            if said:
                with urllib.request.urlopen(f"http://127.0.0.1:{said[1]}/health", timeout=10) as answer:
                    assert answer.status == 200
                return int(said[1])
            assert self.process.poll() is None, self.output()
            time.sleep(0.05)
        raise AssertionError("the server is not ready in time:\n" + self.output())

    def output(self):
        # The server writes at the same file offset, which a read must not move.
        log = self.log.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    def wait_for(self, said, patience=20):
        """Until `said` stands in its output."""
        end = time.monotonic() + patience
        while said not in self.output():
            assert time.monotonic() < end, f"{said!r} was not said:\n{self.output()}"
            time.sleep(0.01)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def metrics(self):
        """The sum of each metric over its labels other than finished_reason."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=10) as answer:
            text = answer.read().decode()
        values = {}
        for line in text.splitlines():
            if line.startswith("#") or not line:
                continue
            name, value = line.rsplit(" ", 1)
            reason = re.search(r'finished_reason="(\w+)"', name)
            key = name.split("{")[0] + (f":{reason[1]}" if reason else "")
            values[key] = values.get(key, 0.0) + float(value)
        return values

    def wait_for_metrics(self, wanted, patience=10):
        """Until the metrics that `wanted` names have its values: all metrics then."""
        end = time.monotonic() + patience
        while True:
            now = self.metrics()
            if all(now[name] == value for name, value in wanted.items()):
                return now
            assert time.monotonic() < end, {name: now[name] for name in wanted}
            time.sleep(0.02)

    def wait_until_idle(self, patience=10):
        """Nothing runs, nothing waits, no block is held: within `patience` seconds."""
        names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]
        return self.wait_for_metrics(dict.fromkeys(names, 0), patience)

    def stop(self, patience=60):
        """Ends it as an operator does; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()
