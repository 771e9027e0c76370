"""Facts about the queue between an iterator's thread and the training loop."""

from __future__ import annotations

import threading

from zmqdata import messages as m
from zmqdata.client.deliveries import LONGEST_STEP, DeliveryQueue, Strides
from zmqdata.client.delivery import Delivery, End
from zmqdata.commands import Deliver

HEADER = m.Block(1, 2, 3, first=10, count=4, skip=0, size=99)


def delivery() -> Delivery:
    return Delivery((Deliver(HEADER, None, 0, 4),), [[1, 2, 3, 4]])


class Lease:
    """A lease that holds or not."""

    holds = True

    def __call__(self) -> bool:
        return self.holds


def test_blocks_wait_for_the_lease() -> None:
    """Without a lease there is nothing to hand out but the end."""
    lease = Lease()
    queue = DeliveryQueue(lease)
    block, end = delivery(), End(None)
    queue.put(block)
    queue.put(end)
    assert queue.first() is block
    lease.holds = False
    assert queue.first() is None
    assert queue.being_read() is block
    queue.remove(block)
    assert queue.first() is end
    assert queue.being_read() is None


def test_an_empty_queue_has_no_first() -> None:
    """It may be asked at any time, and only the block in front can be removed."""
    queue = DeliveryQueue(Lease())
    assert not queue
    assert queue.first() is None
    queue.remove(delivery())
    queue.put(delivery())
    queue.remove(delivery())
    assert queue


def test_dropped_blocks_are_marked() -> None:
    """Whoever holds one finds out that it is not to be reported; the end stays."""
    queue = DeliveryQueue(Lease())
    block, end = delivery(), End(None)
    queue.put(block)
    queue.put(end)
    queue.drop()
    assert block.dropped
    assert queue.first() is end


def test_a_waiting_loop_is_woken_by_what_it_may_hand_out() -> None:
    """A block without a lease does not end the wait; the lease does, when somebody says so."""
    lease = Lease()
    lease.holds = False
    queue = DeliveryQueue(lease)
    waiting = threading.Thread(target=lambda: queue.wait(30.0))
    waiting.start()
    queue.put(delivery())
    waiting.join(0.05)
    assert waiting.is_alive()
    lease.holds = True
    while waiting.is_alive():
        queue.tell()
        waiting.join(0.01)


def test_strides_grow_in_fast_loops_and_not_in_slow_ones() -> None:
    """A loop that takes a piece at once gets a longer one, up to a limit; ended, a piece has nothing left."""
    strides = Strides()
    endless = iter(int, 1)
    sizes = [len(list(strides.begin(endless))) for _ in range(40)]
    assert sizes[0] == 1
    assert max(sizes) == LONGEST_STEP
    strides._since = -1e9
    assert len(list(strides.begin(endless))) == 1
    strides.begin(endless)
    strides.end()
    assert list(strides.elements) == []
