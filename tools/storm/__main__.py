"""The storm: quire servers on loopback under hostile requests, aborts, 10,000 connections, little memory, kills and a soak.

usage: python3 tools/storm [SECONDS] [--quick] [--only TRIAL,...] [--quire PATH] [--json FILE] [--markdown FILE] [--seed N]
       (./dev storm calls it; the standard library is enough)
"""
import argparse
import asyncio
import importlib
import pathlib
import signal
import sys
import traceback

import report
import served
from context import Context, raise_file_limit

TRIALS = ["hostile", "aborts", "connections", "cgroup", "kills", "soak"]
TIME_LIMIT = 3600  # seconds that a trial may take


def arguments():
    parser = argparse.ArgumentParser(prog="./dev storm", description="quire servers on loopback under what the world may do to them; "
                                     "exit status 1 if a verdict is FAILED")
    parser.add_argument("seconds", nargs="?", type=float, help="length of the soak (600)")
    parser.add_argument("--quick", action="store_true", help="smaller numbers of everything, about a minute")
    parser.add_argument("--only", metavar="TRIAL,...", default=",".join(TRIALS), help="some of " + ", ".join(TRIALS))
    parser.add_argument("--quire", metavar="PATH", default=str(served.ROOT / "build/release/quire"), help="the program")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there")
    parser.add_argument("--seed", type=int, default=1, help="what random choices follow from (1)")
    given = parser.parse_args()
    given.only = given.only.split(",")
    for name in given.only:
        if name not in TRIALS:
            parser.error(f"there is no trial '{name}'; there are {', '.join(TRIALS)}")
    if not pathlib.Path(given.quire).is_file():
        parser.error(f"there is no program {given.quire}; ./dev build makes it")
    return given


async def run_trial(name, context):
    """A trial that breaks has failed: what it could not show does not hold."""
    try:
        return await asyncio.wait_for(importlib.import_module(f"trial_{name}").run(context), TIME_LIMIT)
    except (Exception, asyncio.CancelledError) as failed:
        if isinstance(failed, asyncio.CancelledError):
            raise
        traceback.print_exc()
        trial = report.Trial(name, "broke off")
        trial.check(False, f"{type(failed).__name__}: {str(failed)[:300]}")
        return trial


def main():
    given = arguments()
    limit = raise_file_limit()
    # As Ctrl-C: what has been started is ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    context = Context(given.quire, given.quick, given.seed, given.seconds)
    print(f"{report.machine()}; {limit} files may be open; seed {given.seed}\n{context.quire}", flush=True)
    trials = []
    try:
        for name in given.only:
            trials.append(asyncio.run(run_trial(name, context)))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    finally:
        served.kill_all()
        context.close()
        if trials:
            report.print_table(trials)
    if given.json:
        pathlib.Path(given.json).write_text(report.as_json(trials, context) + "\n")
    if given.markdown:
        pathlib.Path(given.markdown).write_text(report.as_markdown(trials))
    return 1 if any(trial.failed for trial in trials) else 0


if __name__ == "__main__":
    sys.exit(main())
