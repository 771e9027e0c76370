"""The library side inside a training process: what makes a dataset distributed, and the
iterators that read it.
"""
