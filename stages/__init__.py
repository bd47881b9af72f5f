"""The pipeline: a file for each stage, named for its verb and run in this order.

fetch_model, generate_boards, audit_reward, baseline_eval, train_gspo, retest.
"""
