"""Weight sync: how the trainer's weights reach the servers that sample, proven at each sync.

`adapter` sends a PEFT folder, `full` merged weights in memory; `chosen` picks one and falls back.
Each has `bring()` and `still_ours()`, and each sync ends with the same proof (`proof`): that the
servers answer with the log-probabilities of the trainer's own forward. `needs` says what a server
must be started with.
"""
