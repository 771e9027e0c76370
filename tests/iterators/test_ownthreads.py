"""Tests of ``zmqdata.iterators.ownthreads``."""

from __future__ import annotations

import threading

import pytest

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.context import Context
from zmqdata.operations.mapping import Map
from zmqdata.operations.sources import Range

NODE = Map(inputs=(Range(start=0, stop=3),), function=int)


def test_a_thread_may_wait_for_what_it_needs_alone() -> None:
    """A thread of an operation may wait for its inputs and for datasets within, and for
    neither itself nor what follows.
    """
    root = Context()
    outer = root.into(NODE)
    inner, nested = outer.into(NODE), outer.nested(7)
    with outer.own_threads:
        for context in (inner, nested, nested.into(NODE)):
            context.own_threads.check()
        for context in (outer, root):
            with pytest.raises(FailedPreconditionError, match="its own iterator"):
                context.own_threads.check()
    with nested.into(NODE).own_threads:
        outer.nested(6).own_threads.check()
        for context in (nested, outer, root):
            with pytest.raises(FailedPreconditionError, match="its own iterator"):
                context.own_threads.check()
    root.own_threads.check()


def test_threads_belong_to_one_iterator() -> None:
    """A thread that works for an iterator may wait for any other iterator."""
    with Context().own_threads:
        Context().own_threads.check()


def test_a_child_of_a_fork_forgets_the_threads_that_it_lacks() -> None:
    """A thread of the child may get the number of a lost one, and is no thread of the
    iterator.
    """
    context = Context()
    thread = threading.Thread(target=context.own_threads.__enter__)
    thread.start()
    thread.join()
    with context.own_threads:
        context.own_threads.disown()
        with pytest.raises(FailedPreconditionError, match="its own iterator"):
            context.own_threads.check()
    assert context.own_threads._places == {}
