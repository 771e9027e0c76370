"""Observation of a forked child of this process, for tests of objects that must not be
used there.
"""

from __future__ import annotations

import os
from collections.abc import Callable


def told_by_child(ask: Callable[[], object]) -> str:
    """Fork, call ``ask`` in the child, and return the text of its result or of its
    error.

    Example:
        >>> told_by_child(lambda: 1 / 0)
        'ZeroDivisionError: division by zero'
    """
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(ask())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writable, answer.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answers:
        text = answers.read()
    os.waitpid(child, 0)
    return text
