"""Passes over a dataset: which pass of a job a reader reads, and how one that was
interrupted begins anew.

See the page on the design.
"""
