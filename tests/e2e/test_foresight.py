"""The trace of bench/foresight.py: what it makes of Azure's."""
import datetime
import importlib.util
import json
import random

import pytest

from server import ROOT
from test_cli import quire

spec = importlib.util.spec_from_file_location("foresight", ROOT / "bench/foresight.py")
foresight = importlib.util.module_from_spec(spec)
spec.loader.exec_module(foresight)


@pytest.fixture
def azure(tmp_path):
    """As Azure writes them: seven decimals, CRLF."""
    draw, at, lines = random.Random(1), datetime.datetime(2023, 11, 16, 23, 59, 50), ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for _ in range(500):
        at += datetime.timedelta(seconds=draw.expovariate(5.5))
        lines.append(f"{at:%Y-%m-%d %H:%M:%S.%f}0,{draw.choice([3, 374, 1020, 14050])},{draw.choice([1, 129, 1000])}")
    path = tmp_path / "azure.csv"
    path.write_bytes("\r\n".join([*lines, ""]).encode())
    return path


def test_the_trace_fits_the_hidden_device_and_keeps_its_order(azure, tmp_path):
    path, out = tmp_path / "trace.csv", tmp_path / "out.json"
    for requests, speed in ((400, 1), (200, 4)):
        foresight.write_trace(azure, path, requests)
        load = foresight.faster(["--trace", path, "--trace-speed", 1], speed)
        quire("simulate", *load, "--requests", requests, "--max-model-len", 512, "--json", out)
        run = json.loads(out.read_text())
        assert (run["requests"], run["refused"]) == (requests, 0)
        records = [dict(zip(run["record_fields"], each)) for each in run["records"]]
        assert records[-1]["arrival_ns"] / 1e9 == pytest.approx((requests - 1) / foresight.TRACE_RATE / speed, abs=0.01)
        assert {each["prompt_tokens"] for each in records} == {1, 32, 85, 360}
        assert {each["output_tokens"] for each in records} == {1, 33, 150}
        rows = azure.read_text().splitlines()[1:requests + 1]
        assert all((row.split(",")[1] == "14050") == (each["prompt_tokens"] == 360) for row, each in zip(rows, records))


def test_without_the_data_the_trace_is_skipped_and_said_to_be(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(foresight, "TRACE", tmp_path / "none.csv")
    options = type("Options", (), {"workload": ["a trace"], "speed": 1, "requests": 10, "repeats": 1})
    foresight.workloads(None, options)
    assert f"| a trace | skipped: {tmp_path}/none.csv is absent" in capsys.readouterr().out
