"""The doctor: whether this machine and this checkout can run the loop, a line for each thing.

It changes nothing.  It must work where much is broken, so every module here imports the standard library
alone, and anything else inside the check that needs it.
"""
