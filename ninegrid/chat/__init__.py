"""How messages and tools become tokens, and how a reply becomes a judged tool call."""
