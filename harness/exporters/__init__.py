"""Export rollouts and artifacts of stores as training data, in the row formats that trainers read.

`record` defines one canonical record of each rollout; every format of rollouts is derived from it, a few at a time.
"""
