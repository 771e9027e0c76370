"""The methods of ``Dataset`` that group elements into datasets or results. A mixin of
the class in ``surface``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqdata import operations
from zmqdata.config.checks import function, positive, refuse
from zmqdata.dataset.arguments import flag
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.dataset.refusals import check_call, check_return


class Groupings(DatasetMethods[D]):
    """Methods that create datasets (``D``) of grouped elements."""

    def window(
        self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> D:
        """Return a dataset of windows: datasets of consecutive elements. If elements
        are nested, each leaf becomes its own dataset.

        Args:
            size: number of elements in a window; the last windows may have fewer.
            shift: distance between the beginnings of consecutive windows; None means
                ``size``.
            stride: distance between consecutive elements of a window.
            drop_remainder: drop windows that are not full.

        >>> from zmqdata.dataset import Dataset
        >>> [[int(x) for x in window] for window in Dataset.range(7).window(3, shift=2)]
        [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6]]

        Equivalent of ``tf.data.Dataset.window``. With the service, each worker forms
        its own windows.
        """
        length = positive("Window size", "size", size)
        return self._then(
            operations.grouping.Window,
            size=length,
            shift=length if shift is None else positive("Window shift", "shift", shift),
            stride=positive("Window stride", "stride", stride),
            drop_remainder=flag("drop_remainder", drop_remainder),
            wrap=self._wrap,
        )

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
    ) -> D:
        """Collect elements by key, and reduce each full group to a dataset. At the end,
        reduce the remaining groups.

        Args:
            key_func: returns the key of an element, an integer.
            reduce_func: gets a key (np.int64) and the dataset of the group; returns the
                dataset whose elements are yielded.
            window_size: number of elements in a group.
            window_size_func: returns that number for a key. Exactly one of the two
                arguments is given.

        >>> from zmqdata.dataset import Dataset
        >>> numbers, pair = Dataset.range(6), lambda key, group: group.batch(2)
        >>> list(numbers.group_by_window(lambda x: x % 2, pair, window_size=2))
        [array([0, 2]), array([1, 3]), array([4]), array([5])]

        Equivalent of ``tf.data.Dataset.group_by_window``. With the service, each worker
        forms its own groups. Iterator states hold numbers, not elements: restoring
        reads again from the oldest element that waits in a group.
        """
        if (window_size is None) == (window_size_func is None):
            raise ValueError(
                "group_by_window() takes either window_size or window_size_func; "
                "pass exactly one of them. Either the `window_size` argument or the "
                "`window_size_func` argument must be specified."
            )
        self._called("key_func", key_func)
        check_call("reduce_func", function("reduce_func", reduce_func), 2)
        check_return("reduce_func", reduce_func)
        check_return("window_size_func", window_size_func)
        if window_size_func is not None:
            check_call("window_size_func", function("window_size_func", window_size_func), 1)
        return self._then(
            operations.grouping.GroupByWindow,
            key_function=key_func,
            function=reduce_func,
            window_size=None
            if window_size is None
            else positive("Window size", "window_size", window_size),
            window_size_function=window_size_func,
            wrap=self._wrap,
        )

    def group_by_reducer(
        self, key_func: Callable[..., Any], reducer: operations.folds.Reducer
    ) -> D:
        """Fold the elements of each key, and yield a result for each key in ascending
        order of keys, after all elements.

        Args:
            key_func: returns the key of an element, an integer.
            reducer: how the elements of a key are folded.

        >>> from zmqdata.dataset import Dataset
        >>> from zmqdata.operations.folds import Reducer
        >>> total = Reducer(lambda key: 0, lambda state, x: state + x, int)
        >>> list(Dataset.range(6).group_by_reducer(lambda x: x % 2, total))
        [6, 9]

        Equivalent of ``tf.data.experimental.group_by_reducer``. With the service, each
        worker yields its own results.
        """
        if not isinstance(reducer, operations.folds.Reducer):
            refuse("reducer", reducer, "a Reducer")
        key_function = self._called("key_func", key_func)
        return self._then(
            operations.folds.GroupByReducer, key_function=key_function, reducer=reducer
        )
