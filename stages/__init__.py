"""The pipeline: a file for each stage, named for its verb and run in this order.

fetch_model, generate_boards, baseline_eval, warm_start, train_gspo, retest.
"""
