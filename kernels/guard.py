"""Keeps a fault of ours from harming a request: logged once, and the feature is off from then on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

logger = logging.getLogger("vllm.radiance")

P = ParamSpec("P")
R = TypeVar("R")

# Features that failed in this process.
broken: set[str] = set()


def fail(feature: str) -> None:
    """Switch a feature off for the process, in the handler of the exception that it raised; logged the first time."""
    if feature not in broken:
        broken.add(feature)
        logger.exception("radiance-patch: %s failed and is off in this process; requests go on", feature)


def safe(feature: str, default: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Wrap a hook of `feature` that answers: where it raises, `default` does, and the feature is off from then on."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception:
                fail(feature)
                return default(*args, **kwargs)

        return call

    return wrap


def guarded(feature: str, on: Callable[[], bool]) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Wrap a hook of `feature`: called only while on() is true and no hook of the feature has raised.

    An exception is logged with its traceback, once, and switches the feature off for the process.
    """

    def wrap(function: Callable[P, None]) -> Callable[P, None]:
        def nothing(*args: P.args, **kwargs: P.kwargs) -> None:
            return None

        hook = safe(feature, nothing)(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            if on() and feature not in broken:
                hook(*args, **kwargs)

        return call

    return wrap
