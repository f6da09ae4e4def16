r"""The four worked examples of math_qwen: those of minerva_math, which end in a box and a sentence.

The questions and their solutions are lm-evaluation-harness 0.4.13's (MIT, LICENSE.harness), first
in Lewkowycz et al., arXiv 2206.14858; the sentence at the end is "The answer is X." instead.
"""

from __future__ import annotations

import re

from engine.contract.templates import minerva_math
from engine.contract.templates.template import Shot

_FINAL = re.compile(r"Final Answer: The final answer is (.*)\. I hope it is correct\.\Z")

SHOTS = tuple(
    Shot(shot.question, _FINAL.sub(lambda found: f"The answer is {found[1]}.", shot.answer))
    for shot in minerva_math.SHOTS
)
