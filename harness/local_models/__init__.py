"""Pretrained language models that run in this process: found on this machine, loaded, asked for log-probabilities."""
