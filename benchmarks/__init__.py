"""What the project costs, measured: ``python -m benchmarks [NAME ...] [--quick] [--save]``.

One module for each benchmark says what is measured and what is not, and makes its tables.  What needs a
model runs in ``pieces``, each piece in a process of its own.
"""
