"""The dispatcher's decisions: `decider` receives events and returns commands, with no
socket, clock or file.
"""
