"""Entry point for tools that still call setup.py; every fact about the package is in
pyproject.toml.
"""

from setuptools import setup

setup()
