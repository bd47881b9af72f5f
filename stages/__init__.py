"""The pipeline: a file for each stage, named for its verb and run in this order.

fetch_model, generate_boards, audit_reward, baseline_eval, try_alternatives, warm_start,
train_gspo, retest, perturb_retest.
Beside them stands a command that runs them many times: repeat_seeds.
"""
