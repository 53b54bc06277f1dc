"""Train language models on rollouts and in environments, with TRL and PEFT. They are imported only when needed."""
