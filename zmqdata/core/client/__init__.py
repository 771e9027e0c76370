"""The decisions of a client: `decider` receives events and returns commands, without
sockets, threads or clocks.
"""
