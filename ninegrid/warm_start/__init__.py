"""Warm starts: what the model is taught before GSPO, by examples (SFT) or preferences (DPO), or nothing."""
