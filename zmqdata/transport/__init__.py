"""How bytes move: sockets, the loops that own them, addresses. Nothing here knows what
a message means.
"""
