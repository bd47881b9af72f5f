"""What runs with a model, each in a process of its own (see ``benchmarks.isolated``).

A piece is a function of a `Subject` and of plain arguments that returns plain data.  Modules here import
torch freely; nothing outside this package imports them.
"""
