"""The dispatcher's decisions: ``decider`` receives events and returns commands, without
any socket, clock or file.

See the page on the design.
"""
