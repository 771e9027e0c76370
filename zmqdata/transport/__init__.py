"""Sockets, the loops that own them, and addresses. Nothing here knows what a message
means.
"""
