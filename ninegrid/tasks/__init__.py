"""Tasks: what the policy is asked, what it may call, and what its call amounted to."""
