"""The command line: one module for each command.

A command is a module of this package whose first line is its summary, written as in `puorl split`,
and which has a dataclass of the module's name with a method ``run``. Nothing else lists commands.
"""
