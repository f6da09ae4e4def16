"""`swift rollout` on a CPU: ms-swift's own server, which counts GPUs before it starts and has none.

The count is left out by a subclass of its arguments; nothing else of it is touched.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from swift.arguments import RolloutArguments
from swift.pipelines.infer.rollout import SwiftRolloutDeploy


@dataclass
class OnCPU(RolloutArguments):
    def _check_device_count(self) -> None:
        """There are none, and vLLM wants none."""


class Serve(SwiftRolloutDeploy):
    args_class = OnCPU


if __name__ == "__main__":
    Serve(sys.argv[1:]).main()
