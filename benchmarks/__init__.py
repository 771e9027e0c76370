"""How fast zmqdata is beside its peers, on one machine, in one run:
``python -m benchmarks --help``.

What is measured is said in ``cases``; who is measured, and at which settings, in
``peers``; how, in ``reading`` (within a peer's process) and ``running`` (who has its
turn when). What comes of it is worked out in ``figures`` and told by ``report`` and
``plots``; ``curves`` measures what grows how. The other modules are programs of their
own.
"""
