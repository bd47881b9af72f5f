"""The policy: where a model comes from, and how it is loaded and saved.

``settings`` (what is asked for) and ``sources`` (how the files are had) import no torch;
``loading`` does.  Prompts, sampling and training live elsewhere.
"""
