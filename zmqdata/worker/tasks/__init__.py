"""The execution of one task: its pipeline, its thread, its splits and its output."""
