r"""The templates by name.

Those that bear a task's name are lm-evaluation-harness 0.4.13's (MIT, LICENSE.harness) to the
character.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.contract.templates import gsm8k_cot, math_qwen, mbpp, minerva_math
from engine.contract.templates.template import Template

_ALL = (
    Template(
        "gsm8k",
        "Question: {prompt}\nAnswer:",
        "lm-evaluation-harness, task gsm8k; shots drawn from training rows",
        ("gsm8k_hashes", "gsm8k_flexible"),
        stops=("Question:", "</s>", "<|im_end|>"),
        usual_shots=5,
        delimiter=" ",
        after_system="",
    ),
    Template(
        "gsm8k_cot",
        "Q: {prompt}\nA:",
        "lm-evaluation-harness, task gsm8k_cot",
        ("gsm8k", "gsm8k_flexible"),
        ("Q:", "</s>", "<|im_end|>"),
        gsm8k_cot.SHOTS,
        len(gsm8k_cot.SHOTS),
        delimiter=" ",
        after_system="",
    ),
    Template(
        "gsm8k_cot_zeroshot",
        "Q: {prompt}\nA: Let's think step by step.",
        "lm-evaluation-harness, task gsm8k_cot_zeroshot",
        ("gsm8k", "gsm8k_flexible"),
        ("Q:", "</s>", "<|im_end|>"),
        delimiter=" ",
        after_system="",
    ),
    Template(
        "minerva_math",
        "Problem:\n{prompt}\n\nSolution:",
        "lm-evaluation-harness, task minerva_math",
        ("minerva_final_answer", "math"),
        ("Problem:",),
        minerva_math.SHOTS,
        len(minerva_math.SHOTS),
        delimiter=" ",
        after_system="",
    ),
    Template(
        "math",
        "Problem:\n{prompt}\n\nSolution:",
        "the question of minerva_math for training on MATH: no shots",
        ("minerva_math", "math"),
    ),
    Template(
        "hendrycks_math",
        "Problem: {prompt}\nAnswer:",
        "lm-evaluation-harness, task hendrycks_math; shots drawn from training rows",
        ("hendrycks_math",),
        ("Problem:",),
        shows_gold=True,
        delimiter=" ",
        after_system="",
    ),
    Template(
        "mbpp",
        "You are an expert Python programmer, and here is your task: {prompt}\n[BEGIN]\n",
        "lm-evaluation-harness, task mbpp; the question ends with three tests",
        ("mbpp",),
        ("[DONE]",),
        mbpp.SHOTS,
        len(mbpp.SHOTS),
        delimiter="",
        after_system="",
    ),
    Template(
        "humaneval",
        "{prompt}",
        "lm-evaluation-harness, task humaneval: the head of a function, to be continued",
        ("humaneval",),
        ("\nclass", "\ndef", "\n#", "\nif", "\nprint"),
        delimiter=" ",
        after_system="",
    ),
    Template(
        "ifeval",
        "{prompt}",
        "lm-evaluation-harness, task ifeval: the bare prompt",
        ("ifeval",),
        delimiter=" ",
        after_system="",
    ),
    Template(
        "math_qwen",
        "Question: {prompt}\nAnswer:",
        "MATH as base models of the Qwen family are often asked: four worked answers with a box",
        ("math",),
        ("Question:",),
        math_qwen.SHOTS,
        len(math_qwen.SHOTS),
    ),
    Template(
        "boxed",
        "{prompt}\nPlease reason step by step, and put your final answer within \\boxed{}.",
        "what Qwen's instruct models are asked",
        ("minerva_math", "math"),
    ),
    Template(
        "verl_gsm8k",
        '{prompt} Let\'s think step by step and output the final answer after "####".',
        "what verl adds to GSM8K's questions",
        ("gsm8k_any", "math"),
    ),
    Template(
        "verl_math",
        "{prompt} Let's think step by step and output the final answer within \\boxed{}.",
        "what verl adds to MATH's questions",
        ("minerva_math", "math"),
    ),
    Template(
        "answer_is",
        '{prompt}\nThink step by step, and end with the sentence "The answer is X.", X being the '
        "final answer.",
        "asks for the sentence that gsm8k_cot reads",
        ("gsm8k", "math"),
    ),
    Template(
        "r1",
        "A conversation between User and Assistant. The user asks a question, and the Assistant "
        "solves it. The assistant first thinks about the reasoning process in the mind and then "
        "provides the user with the answer. The reasoning process and answer are enclosed within "
        "<think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning "
        "process here </think> <answer> answer here </answer>. User: {prompt}. Assistant:",
        "DeepSeek-R1-Zero, arXiv 2501.12948, table 1",
        ("math",),
    ),
)

TEMPLATES: Mapping[str, Template] = {template.name: template for template in _ALL}


def template_problem(name: str) -> str | None:
    """What is wrong with a template's name, with the way out; None where there is such a one.

    >>> template_problem("gsm8k_cot") is None
    True
    """
    if name in TEMPLATES:
        return None
    known = ", ".join(sorted(TEMPLATES))
    return f"is not a template; known: {known}; or write a form of your own with question_format"


def shots_problem(name: str | None, shots: int) -> tuple[str, str] | None:
    """(problem, remedy) of a number of fixed worked examples that a template does not have.

    >>> shots_problem("minerva_math", 8)
    ('minerva_math has 4 worked examples, not 8', 'use 4 at most, or name a source to draw from')
    """
    template = TEMPLATES.get(name or "")
    if template is None or not template.shots:
        if not shots:
            return None
        problem = f"{name or 'a form of your own'} has no worked examples of its own"
        return problem, "name a training source to draw them from"
    if shots <= len(template.shots):
        return None
    most = len(template.shots)
    problem = f"{name} has {most} worked examples, not {shots}"
    return problem, f"use {most} at most, or name a source to draw from"
