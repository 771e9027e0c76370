"""The dispatcher's sockets, clock and files, around
``zmqdata.core.dispatcher.decider``. This module imports nothing.
"""
