"""The methods of ``Dataset`` that put elements together in datasets or results. A part
of the class in ``surface``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqdata import nodes
from zmqdata.dataset.arguments import at_least, call_site, flag, function, refuse
from zmqdata.dataset.parts import D, DatasetMethods


class Groupings(DatasetMethods[D]):
    """Makes datasets (``D``) out of this one in which elements stand together."""

    def window(
        self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> D:
        """Datasets of consecutive elements. Where elements are nested, each leaf
        becomes a dataset of its own.

        Args:
            size: how many elements a window has; the last ones may have fewer.
            shift: how many elements further the next window begins; None: ``size``.
            stride: how far apart the elements of a window lie.
            drop_remainder: leave out windows that are not full.

        >>> from zmqdata.dataset import Dataset
        >>> [[int(x) for x in window] for window in Dataset.range(7).window(3, shift=2)]
        [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6]]

        As ``tf.data.Dataset.window``. In the service each worker has windows of its
        own.
        """
        length = at_least("size", size, 1)
        return self._wrap(
            nodes.Window(
                inputs=(self._node,),
                site=call_site(),
                size=length,
                shift=length if shift is None else at_least("shift", shift, 1),
                stride=at_least("stride", stride, 1),
                drop_remainder=flag("drop_remainder", drop_remainder),
                wrap=self._wrap,
            )
        )

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
    ) -> D:
        """Collect elements by key, and make a dataset of each group that is full; at
        the end, of all that are left.

        Args:
            key_func: from an element to its key, an integer.
            reduce_func: from a key (np.int64) and the dataset of the group to a
                dataset, whose elements come out.
            window_size: how many elements a group has.
            window_size_func: from a key to how many; one of the two is given.

        >>> from zmqdata.dataset import Dataset
        >>> ds = Dataset.range(6).group_by_window(lambda x: x % 2, lambda key, group: group.batch(2), window_size=2)
        >>> list(ds)
        [array([0, 2]), array([1, 3]), array([4]), array([5])]

        As ``tf.data.Dataset.group_by_window``. In the service each worker has groups of
        its own. Iterator states hold numbers, not elements: restoring pulls again from
        the oldest element that waits in a group.
        """
        if (window_size is None) == (window_size_func is None):
            raise ValueError(
                "group_by_window() takes either window_size or window_size_func: not both, not none"
            )
        return self._wrap(
            nodes.GroupByWindow(
                inputs=(self._node,),
                site=call_site(),
                key_function=function("key_func", key_func),
                function=function("reduce_func", reduce_func),
                window_size=None
                if window_size is None
                else at_least("window_size", window_size, 1),
                window_size_function=window_size_func
                and function("window_size_func", window_size_func),
                wrap=self._wrap,
            )
        )

    def group_by_reducer(self, key_func: Callable[..., Any], reducer: nodes.Reducer) -> D:
        """One result for each key, by rising keys, after all elements were folded into
        them.

        Args:
            key_func: from an element to its key, an integer.
            reducer: how the elements of a key are folded.

        >>> from zmqdata.dataset import Dataset
        >>> total = nodes.Reducer(lambda key: 0, lambda state, x: state + x, lambda state: int(state))
        >>> list(Dataset.range(6).group_by_reducer(lambda x: x % 2, total))
        [6, 9]

        As ``tf.data.experimental.group_by_reducer``. In the service each worker has
        results of its own.
        """
        if not isinstance(reducer, nodes.Reducer):
            refuse("reducer", reducer, "a Reducer")
        key_function, site = function("key_func", key_func), call_site()
        return self._wrap(
            nodes.GroupByReducer(
                inputs=(self._node,), site=site, key_function=key_function, reducer=reducer
            )
        )
