"""The report of a retest: one HTML page and its figures, written from plain numbers.

It knows outcomes, scores and replies, but no task, model or file layout; whatever it says follows
from `ReportInputs`.  Nothing is imported here: who wants the colours alone does not wait for matplotlib.
"""
