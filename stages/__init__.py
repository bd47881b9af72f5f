"""The pipeline: a file for each stage, named for its verb and run in this order.

fetch_model, generate_boards, audit_reward, baseline_eval, try_alternatives, warm_start,
train_gspo, retest, perturb_retest.
Beside them stand commands over whole loops: repeat_seeds and sweep run many, compare sets them side by side.
"""
