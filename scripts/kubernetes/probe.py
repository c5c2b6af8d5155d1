"""Clients in pods that try a server's ports again and again, and since when each port is reached, or not."""

import json
import time

from machine import Failure, until
from overlay import inside

# The time between attempts of a client, seconds; an attempt ends after one second. Both limit how exactly a change is seen.
PAUSE, ATTEMPT = 0.2, 1
# Attempts in a row by which a change counts as done.
SETTLED = 5


def command(address, ports):
    """Returns the command of a client without end. Each attempt is a line of its file: the port, the start in seconds of uptime, the result."""
    script = f"""
        while :; do
            read -r now rest </proc/uptime
            for port in {" ".join(map(str, ports))}; do
                (
                    answer=$(timeout {ATTEMPT} redis-cli -h {address} -p $port PING 2>&1)
                    [ "$answer" = PONG ] && reached=true || reached=false
                    echo "[$port, $now, $reached]" >>/tmp/attempts
                ) &
            done
            sleep {PAUSE}
        done
    """
    return ("sh", "-c", script)


def now():
    """Returns the time as /proc/uptime has it in each pod."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def attempts(run, client, port, since):
    """Returns start and result of each attempt from a time on, in the order of their starts. Those that may not have ended are left out."""
    end = now() - ATTEMPT - 0.5
    lines = inside(run, client, "cat", "/tmp/attempts", check=False).stdout.splitlines()
    rows = (json.loads(line) for line in lines if line.endswith("]"))
    return sorted((start, reached) for tried, start, reached in rows if tried == port and since <= start <= end)


def until_reached(run, client, port, since, reached=True):
    """Waits until a client reaches a port, or does not any more. Returns the seconds from `since` to the first of those attempts."""

    def settled():
        tried = attempts(run, client, port, since)
        last = next((number for number in range(len(tried) - 1, -1, -1) if tried[number][1] != reached), -1)
        return len(tried) - last > SETTLED and (tried[last + 1][0],)

    (first,) = until(f"{client} {'reaches' if reached else 'does not reach'} port {port}", settled)
    return first - since


def check_never(run, client, port, since):
    """Fails if an attempt from a time on has reached a port."""
    tried = attempts(run, client, port, since)
    wrong = [start - since for start, reached in tried if reached]
    if wrong or not tried:
        raise Failure(f"of {len(tried)} attempts of {client} to reach port {port} {len(wrong)} did, after {wrong[:5]} s")
