"""This process and its machine: file descriptors, threads, and the run of a program."""
