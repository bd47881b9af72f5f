"""The play page: a game against the untrained model, the trained policy, both, or a reference player.

It asks the policies through the prompt, engine and judge of training and evaluation, and adds nothing to
them.  What is drawn in the browser is in ``page`` and the ``*_view`` modules; nothing else here knows the UI
library.  It is part of no stage.
"""
