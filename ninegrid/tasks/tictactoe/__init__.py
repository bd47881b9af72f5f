"""Tic-tac-toe as a task: one move of X on a board that random play led to, or a whole game."""

from ninegrid.tasks.tictactoe.game import TicTacToeGame
from ninegrid.tasks.tictactoe.task import TicTacToe

__all__ = ["TicTacToe", "TicTacToeGame"]
