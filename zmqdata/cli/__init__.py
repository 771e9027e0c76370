"""The command line: arguments, exit codes and tables for a terminal."""
