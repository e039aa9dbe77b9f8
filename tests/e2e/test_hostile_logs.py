"""Decision logs whose first line promises more than they hold: `quire explain` takes memory for what is there."""
import json
import os
import subprocess

import pytest

from server import QUIRE, ROOT
from test_cli import quire
from test_explain import one_block, read_blocks

MOST_KIB = 256 * 1024
ALLOCATE, SKIP, SWAP_OUT, ADD = 6, 4, 12, 1  # a decision's byte: 1 + its kind
BLOCKS, = (3,)  # WaitReason
FIRST, BEHIND = 0x20, 0x21  # CauseKind
PRIORITY = 6  # Ground


def leb128(*values):
    out = b""
    for value in values:
        while value >= 128:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        out += bytes([value])
    return out


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The first line and the first records of a simulation's log: about 8 KB."""
    path = tmp_path_factory.mktemp("real") / "run.log"
    quire("simulate", "--demo", "--requests", 12, "--every", 0, "--decision-log", path)
    header, records = read_blocks(path)
    return json.loads(header), records[:8000]


def add(seq, priority=0, prompt=1):
    """A sequence that comes and is taken in."""
    zigzag = 2 * priority if priority >= 0 else -2 * priority - 1
    return (b"a" + leb128(seq, prompt) + bytes(prompt) + leb128(1, 0, 0, 0, 0, 0, zigzag, 0, 0, 0) +
            leb128(ADD, seq, prompt, 1))


def moved_again_and_again(_):
    """A sequence with many blocks, all of which are said to be moved to the host many times in one step."""
    out = add(0) + b"p\1\0"
    for block in range(1000):
        out += leb128(ALLOCATE, 0, block, 0)
    return out + leb128(SWAP_OUT, 0, 1000, 0) * 700


def another_is_first_in_line(_):
    """Many wait behind the first in line, which is another one in every step, for another reason each time."""
    waiting = 1500
    out = b"".join(add(seq, priority=100 - seq % 3) for seq in range(waiting)) + b"p\1\0"
    out += b"".join(leb128(SKIP, seq, 4, 0) for seq in range(waiting))
    for step in range(2500):
        out += b"p" + leb128(step + 2, 0)
        out += leb128(FIRST, step % 3, PRIORITY, 0) + b"".join(leb128(BEHIND, seq, PRIORITY, step % 5) for seq in (5, 6))
        out += leb128(SKIP, step % 3, BLOCKS, 1)
    return out


HOSTILE = {
    "blocks": ({"num_blocks": 1 << 26}, None),
    "slots": ({"max_num_seqs": 1 << 26, "max_num_batched_tokens": 1 << 30}, None),
    "host blocks": ({"num_host_blocks": 1 << 26}, None),
    "long blocks": ({"block_size": 2**32 - 1, "max_model_len": 2**32 - 1}, None),
    "groups": ({"kv_windows": [0] * 1000, "num_blocks": 1 << 26}, None),
    "all": ({"num_blocks": 1 << 26, "num_host_blocks": 1 << 26, "max_num_seqs": 1 << 26,
             "max_num_batched_tokens": 2**32 - 1, "max_waiting": 2**32 - 1, "max_model_len": 2**32 - 1,
             "eviction": "arc", "scheduling": "fair"}, None),
    "moves": ({"num_blocks": 1 << 26, "num_host_blocks": 1 << 26}, moved_again_and_again),
    "lines": ({"scheduling": "priority"}, another_is_first_in_line),
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("form", ["table", "request", "html", "replay"])
def test_a_log_takes_no_more_memory_than_it_can_account_for(real, tmp_path, what, form):
    changes, make = HOSTILE[what]
    header, records = real
    header = header | {"scheduler": header["scheduler"] | changes}
    log = tmp_path / "hostile.log"
    log.write_bytes(one_block(json.dumps(header, separators=(",", ":")).encode() + b"\n", make(records) if make else records,
                              b"a\0\0\0"))
    flags = {"table": [], "request": ["--request", "0"], "html": ["--html", tmp_path / "out.html"],
             "replay": ["--replay"]}[form]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen([QUIRE, "explain", str(log), *map(str, flags)], stdout=out, stderr=err, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    errors = (tmp_path / "err").read_text().splitlines()
    assert process.returncode in (0, 1), errors
    assert usage.ru_maxrss <= MOST_KIB, f"{log.stat().st_size} bytes of log took {usage.ru_maxrss >> 10} MiB"
    if process.returncode == 1 and not (tmp_path / "out").stat().st_size:
        assert len(errors) == 1 and errors[0].startswith("quire: ") and "hostile.log" in errors[0], errors
