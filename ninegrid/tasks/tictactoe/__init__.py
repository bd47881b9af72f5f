"""Tic-tac-toe as a task: one move of X on a board that random play led to."""

from ninegrid.tasks.tictactoe.task import TicTacToe

__all__ = ["TicTacToe"]
