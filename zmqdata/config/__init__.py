"""The settings of dispatcher and worker, and the addresses and keys that settings
name.
"""
