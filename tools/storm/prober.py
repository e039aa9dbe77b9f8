"""Asks /health and /metrics again and again, each over a connection of its own, until its standard input ends;
then prints how long each took and what failed. A process by itself, so that the storm's own work is not measured.

usage: python3 prober.py PORT BOUND_SECONDS < until
"""
import http.client
import json
import select
import sys
import time

PAUSE = 0.05
LONGEST = 3600


def probe(port, path, bound):
    """What was wrong, or None."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=bound)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        answer.read()
        return None if answer.status == 200 else f"{path}: {answer.status}"
    except (OSError, http.client.HTTPException) as failed:
        return f"{path}: {failed!r}"
    finally:
        connection.close()


def main():
    port, bound = int(sys.argv[1]), float(sys.argv[2])
    times, failed, begun, over = [], [], time.monotonic(), False
    while not over and time.monotonic() - begun < LONGEST:
        # What is asked last is asked when all is over: at least once.
        over = bool(select.select([sys.stdin], [], [], PAUSE)[0])
        for path in ("/health", "/metrics"):
            start = time.monotonic()
            wrong = probe(port, path, bound)
            times.append(time.monotonic() - start)
            if wrong:
                failed.append(wrong)
    json.dump({"times": times, "failed": failed}, sys.stdout)


if __name__ == "__main__":
    main()
