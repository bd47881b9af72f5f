"""The reward audit: what a reward table pays to those who have learned nothing, worked out exactly.

It needs examples and a reward table and knows no model.  Not here: any advice on what to set instead.
"""
