"""The engine: sampling and scoring on the tree of distinct tokens, and the padded reference."""
