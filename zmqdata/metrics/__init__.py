"""Metrics of the servers for Prometheus: ``declared`` names them, ``growth`` sums their
counters, ``listening`` opens their port, and ``serving`` answers on it.

The servers themselves measure: ``dispatcher.metrics`` and ``worker.metrics``.
"""
