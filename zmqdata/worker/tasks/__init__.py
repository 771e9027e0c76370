"""The execution of a task: its pipeline, its thread, its splits and its output."""
