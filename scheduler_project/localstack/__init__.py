"""The local stack of `./punctual up`: engines from wheels and Punctual's own processes, on one machine.

The processes import nothing from this package: environment variables configure them, as in production.
Entry points: `commands.cli.main`, `stack.assemble_stack`.
"""
