"""Perturbed retests: the same question asked differently, before and after training."""
