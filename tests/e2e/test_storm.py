"""The storm in its short form: what it shows must hold on any machine, however slow."""
import json
import subprocess
import sys

import pytest

from server import QUIRE, ROOT

STORM = ROOT / "tools/storm"


@pytest.mark.parametrize("trial", ["hostile", "aborts", "connections", "cgroup", "kills", "soak"])
def test_storm(trial, tmp_path):
    figures = tmp_path / "figures.json"
    done = subprocess.run([sys.executable, STORM, "--quick", "--only", trial, "--quire", QUIRE, "--json", figures],
                          capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = json.loads(figures.read_text())["trials"]
    assert told["name"] == trial and told["verdicts"] and not told["failed"]
    print(done.stdout)


def test_a_verdict_can_fail(tmp_path):
    """A server that is well but for its streams: it closes them without a byte."""
    fake = tmp_path / "quire"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    done = subprocess.run([sys.executable, STORM, "--quick", "--only", "connections", "--quire", fake],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and "closed without a byte" in done.stdout, done.stdout + done.stderr


FAKE = f"#!{sys.executable}\n" + '''
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            self.wfile.write(b"vllm:%s 0\\n" % name.encode())
    def do_POST(self):
        self.close_connection = True
    def log_message(self, *unused):
        pass
if "--help" not in sys.argv:
    http.server.ThreadingHTTPServer.request_queue_size = 4096
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"fake listens on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
'''
