"""The deciders: pure state machines and their parts. No socket, thread, file, clock,
randomness or uuid lives here.
"""
