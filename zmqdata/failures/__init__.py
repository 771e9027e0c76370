"""Exceptions that cross process boundaries."""
