"""Speed of zmqdata and its peers, on the same machine, in the same run.

``python -m benchmarks --help`` lists the commands. ``cases`` lists what is measured;
``peers`` lists the libraries and their settings. ``reading`` measures within a peer's
process, and ``running`` schedules the turns. ``figures`` evaluates the results;
``report`` and ``plots`` present them. ``curves`` measures how costs grow. The other
modules are separate programs.
"""
