"""The client's decisions: `decider` receives events and returns commands, with no
socket, thread or clock.
"""
