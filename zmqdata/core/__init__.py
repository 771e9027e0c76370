"""The deciders: pure state machines and their parts. They use no socket, thread, file,
clock, random number or uuid.

See the page on the design.
"""
