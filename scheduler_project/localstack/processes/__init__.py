"""The processes of the stack: their description, how they start, and how leftovers of a crash are found and stopped.

Entry points: `spec.ProcessSpec`, `launch.main`, `records.stop_leftover_processes`.
"""
