"""Signals that end a process, heard only where it is safe to stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

Check = Callable[[], None]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a container's stop, a closed terminal


def raise_interrupt() -> None:
    """Let every signal that asks a process to end raise KeyboardInterrupt, as Ctrl-C does."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # ignored under nohup and in background jobs
            signal.signal(number, signal.default_int_handler)


@contextlib.contextmanager
def held() -> Iterator[Check]:
    """Hold back the signals that ask a process to end; what is yielded raises KeyboardInterrupt once one has come.

    One that comes after the last check is too late: what was asked for is done.
    """
    came: list[int] = []

    def check() -> None:
        if came:
            raise KeyboardInterrupt

    previous = {}
    if threading.current_thread() is threading.main_thread():  # no other thread can change a handler
        for number in ENDING:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                previous[number] = signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield check
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
