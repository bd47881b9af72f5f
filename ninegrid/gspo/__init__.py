"""Post-training with GSPO: advantages, objective, optimiser, and the loop around them."""
