"""The dispatcher's sockets, clock and files, around
``zmqdata.core.dispatcher.decider``. Nothing is imported here.
"""
