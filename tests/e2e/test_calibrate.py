"""quire calibrate: it finds the costs of a device that hides them, and says what it cannot do."""
import json
import subprocess

import pytest

from server import MODEL, QUIRE

# Of the device that is to be found.
HIDDEN = ["--cost-step-us", 1500, "--cost-prefill-tokens-per-ms", 50, "--cost-decode-us", 2500, "--cost-decode-more-us", 120]


def quire(*args, fails=False):
    done = subprocess.run([QUIRE, *map(str, args)], capture_output=True, text=True, timeout=300)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibrate") / "cost.json"
    said = quire("calibrate", MODEL, "--device", "sim", *HIDDEN, "--max-num-seqs", 16, "--max-num-batched-tokens", 256, "--num-blocks", 512,
                 "--seconds", 5, "--table", "-o", path)
    return path, said


def simulate(tmp_path, *cost):
    out = tmp_path / "out.json"
    quire("simulate", "--rate", 20, "--requests", 300, "--prompt-len", "uniform:20:200", "--output-len", "uniform:5:60", "--max-num-seqs", 16,
          "--max-num-batched-tokens", 256, "--num-blocks", 512, "--json", out, *cost)
    return json.loads(out.read_text())


def test_a_hidden_device_is_found(fitted, tmp_path):
    """The times of a workload that was not used to fit, by the real costs and by the fitted ones."""
    path, said = fitted
    assert "median error %" in said and "measured ms" in said and str(path) in said
    kept = json.loads(path.read_text())
    assert {each["kind"] for each in kept["errors"]} == {"decode", "prefill", "mixed"}
    assert all(each["steps"] > 20 for each in kept["errors"])
    real, guessed = simulate(tmp_path, *HIDDEN), simulate(tmp_path, "--cost", path)
    assert guessed["extrapolated_steps"] == 0
    for figure, bound in (("ttft_ns", 0.1), ("tpot_ns", 0.08), ("e2e_ns", 0.08)):
        assert guessed[figure]["mean"] == pytest.approx(real[figure]["mean"], rel=bound), figure


def test_the_same_flags_give_the_same_digest(fitted, tmp_path):
    first, second = (simulate(tmp_path, "--cost", fitted[0]) for _ in range(2))
    assert first == second
    jittered = [simulate(tmp_path, "--cost", fitted[0], "--cost-jitter") for _ in range(2)]
    assert jittered[0] == jittered[1] and jittered[0]["digest"] != first["digest"]


def test_beyond_what_was_fitted_it_says_so(fitted, tmp_path):
    said = quire("simulate", "--requests", 5, "--prompt-len", 3000, "--output-len", 20, "--max-num-seqs", 64, "--num-blocks", 4096, "--cost", fitted[0])
    assert "lie beyond what the cost model was fitted to" in said


def test_a_server_runs_at_the_fitted_pace(fitted, tmp_path):
    """A step log of the device that the fitted model makes, fitted again, gives the same times."""
    log, again = tmp_path / "steps.log", tmp_path / "again.json"
    quire("bench", "throughput", MODEL, "--device", "sim", "--cost", fitted[0], "--max-num-seqs", 16, "--max-num-batched-tokens", 256,
          "--num-blocks", 512, "--requests", 60, "--rate", 20, "--prompt-len", "uniform:20:200", "--output-len", "uniform:5:40",
          "--step-log", log)
    said = quire("calibrate", "--from", log, "-o", again)
    assert "steps" in said
    one, two = (simulate(tmp_path, "--cost", path) for path in (fitted[0], again))
    assert two["tpot_ns"]["mean"] == pytest.approx(one["tpot_ns"]["mean"], rel=0.1)


def test_errors_say_what_to_do(fitted, tmp_path):
    path, _ = fitted
    assert "MODEL is missing" in quire("calibrate", fails=True)
    assert "no such file" in quire("calibrate", "--from", tmp_path / "none", fails=True)
    log = tmp_path / "few.log"
    quire("run", MODEL, "-p", "a fox", "--max-tokens", 5, "--step-log", log)
    assert "too few to fit a cost model" in quire("calibrate", "--from", log, "-o", tmp_path / "x.json", fails=True)
    assert not (tmp_path / "x.json").exists()
    letter = tmp_path / "letter.json"
    letter.write_text("dear fox")
    assert "cost model" in quire("calibrate", MODEL, "-o", letter, fails=True)
    assert letter.read_text() == "dear fox"
    assert "is no cost model" in quire("simulate", "--cost", fitted_copy(tmp_path, path, "quire_cost", "other"), fails=True)
    assert "with --cost" in quire("simulate", "--cost", path, "--cost-step-us", 5, fails=True)
    assert "without --device sim" in quire("bench", "throughput", MODEL, "--cost", path, fails=True)


def fitted_copy(folder, path, key, new):
    kept = json.loads(path.read_text())
    kept[new] = kept.pop(key)
    copy = folder / "copy.json"
    copy.write_text(json.dumps(kept))
    return copy
