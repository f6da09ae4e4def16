"""Reinforcement learning from verifiable rewards.

The names here and the loop behind them are torch-free; the real seams come from `gpu_seams`.
"""

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import GRPOConfig
from engine.rl.loop import RLLoop
from engine.rl.seams import gpu_seams
from engine.run.stop import current_rl_hooks, rl_hooks

__all__ = ["GRPOConfig", "RLLoop", "RLLoopError", "current_rl_hooks", "gpu_seams", "rl_hooks"]
