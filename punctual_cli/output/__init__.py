"""What commands print: tables, JSON and YAML, messages, progress bars, and text with control characters escaped.

Entry points: `results.write_list`, `results.write_resource`, `terminal.write_message`, `terminal.confirm`.
"""
