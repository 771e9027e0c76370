"""The library side inside a training process: the functions that distribute a dataset,
and the iterators that read it.
"""
