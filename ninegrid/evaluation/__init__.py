"""Measuring a policy: the same way before and after, and honestly compared."""
