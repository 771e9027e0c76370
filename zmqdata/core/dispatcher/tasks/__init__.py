"""Tasks at the dispatcher: on which workers they run, who reads them there, and what
becomes of them when a worker is lost.

See the page on the design.
"""
