"""The numbers that ``DatasetIterator.stats`` returns.

| key | meaning | unit |
|---|---|---|
| ``data/wait_ms`` | wait for an element | ms |
| ``data/wait_share`` | share of its time that the loop waits | 0 to 1 |
| ``data/step_ms`` | time that the loop itself takes for an element | ms |
| ``data/elements_per_second`` | elements that the loop takes | 1/s |
| ``data/first_element_seconds`` | wait for the first element of the pass | s |
| ``data/elements`` | elements taken since the pass began | |
| ``data/waited_seconds`` | waits since the pass began, without the first | s |
| ``data/workers`` | workers that make elements for the loop | |
| ``data/workers_needed`` | workers that would feed the loop; 0 if unknown | |
| ``data/node_share`` | share of the workers' time in the slowest node | 0 to 1 |
| ``data/verdict`` | what limits the loop, see ``zmqdata.core.verdict`` | text |
| ``data/advice`` | evidence and advice | text |

An element is what the dataset yields, a batch if it was batched.
"""

from __future__ import annotations

from typing import Any

from zmqdata.core.verdict import Situation, judge


def stats_of(situation: Situation, *, with_texts: bool = True) -> dict[str, Any]:
    """Return the numbers, and the verdict, of a situation.

    Args:
        situation: what is known of a loop and of all that feeds it.
        with_texts: True to include the verdict and the advice.
    """
    loop, verdict = situation.loop, judge(situation)
    elements, seconds = loop.elements, loop.seconds
    found: dict[str, Any] = {
        "data/wait_ms": 1000 * loop.waiting / elements if elements else 0.0,
        "data/wait_share": situation.wait_share,
        "data/step_ms": 1000 * situation.step,
        "data/elements_per_second": elements / seconds if seconds else 0.0,
        "data/first_element_seconds": situation.first or 0.0,
        "data/elements": situation.total.elements,
        "data/waited_seconds": situation.total.waiting,
        "data/workers": float(situation.workers),
        "data/workers_needed": float(verdict.workers_needed),
        "data/node_share": verdict.node_share,
    }
    if with_texts:
        found |= {"data/verdict": verdict.word, "data/advice": verdict.advice}
    return found
