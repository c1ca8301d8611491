"""What mpiexec says about a failed job, taken out of the ranks' output and understood.

mpich's mpiexec prints, between the ranks' own lines::

    ===================================================================================
    =   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
    =   PID 3728 RUNNING AT host
    =   EXIT CODE: 9
    ===================================================================================
    YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
    This typically refers to a problem with your application.
    Please see the FAQ page for debugging suggestions
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RULE = b"=" * 83
NOISE = re.compile(
    rb"(?P<rule>={83}$)"
    rb"|(?P<banner>=   (?:BAD TERM|PID \d+ |EXIT CODE|CLEANING UP|YOU CAN IGNORE))"
    rb"|YOUR APPLICATION TERMINATED WITH THE EXIT STRING: (?P<end>.*)$"
    rb"|This typically refers to a problem with your application\."
    rb"|Please see the FAQ page for debugging suggestions"
    rb"|(?P<timeout>\[mpiexec@.*APPLICATION TIMED OUT)"
    rb"|\[mpiexec@.*(?:Ctrl-C|Press)"
    rb"|\[(?:mpiexec|proxy:\d+)@.*\(.*\.c:\d+\): "
    rb"|Abort\(\d+\) on node \d+ \(rank \d+ in comm \d+\): application called"
)
# A line may be held back until it is complete only if it can still become one of these.
BEGINNINGS = (
    RULE,
    b"=   ",
    b"YOUR APPLICATION",
    b"This typically",
    b"Please see",
    b"[mpiexec@",
    b"[proxy:",
    b"Abort(",
)


@dataclass
class Report:
    """What mpiexec said; shared by the filters of the two output streams."""

    killed: str | None = None  # what ended the first rank that died, "Killed (signal 9)"
    timed_out: bool = False


class OutputFilter:
    """Takes mpiexec's own lines out of one stream; passes the rest on without delay."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._partial = b""  # an unfinished line that is held back
        self._fresh = True  # whether the next byte begins a line
        self._rule = b""  # a held-back rule, and a blank line before it
        self._in_banner = False

    def feed(self, data: bytes) -> bytes:
        """The part of the output so far that may be shown."""
        *lines, rest = (self._partial + data).split(b"\n")
        shown = b"".join(self._line(line + b"\n") for line in lines)
        self._partial = b""
        if rest and self._fresh and _may_be_noise(rest):
            self._partial = rest
        elif rest:
            shown += self._release() + rest
            self._fresh = False
        return shown

    def finish(self) -> bytes:
        """What is still held back when the stream ends."""
        return self._release() + self._partial

    def _line(self, line: bytes) -> bytes:
        begins, self._fresh = self._fresh, True
        match = NOISE.match(line.rstrip(b"\r\n")) if begins else None
        if match is None:
            if begins and line == b"\n" and not self._rule:
                self._rule = line  # mpiexec prints a blank line before its banner
                return b""
            return self._release() + line
        if match["rule"]:
            self._hold_rule(line)
            return b""
        if match["banner"]:
            self._rule, self._in_banner = b"", True
        self._note(match)
        return b""

    def _hold_rule(self, line: bytes) -> None:
        """The rule that ends a banner is dropped; any other may begin one."""
        self._rule = b"" if self._in_banner else self._rule + line
        self._in_banner = False

    def _release(self) -> bytes:
        held, self._rule = self._rule, b""
        return held

    def _note(self, match: re.Match[bytes]) -> None:
        if match["end"]:
            self._report.killed = match["end"].decode(errors="replace")
        self._report.timed_out = self._report.timed_out or bool(match["timeout"])


def _may_be_noise(start: bytes) -> bool:
    return any(start.startswith(noise) or noise.startswith(start) for noise in BEGINNINGS)
