"""The four worked examples of minerva_math.

From lm-evaluation-harness 0.4.13 (MIT, LICENSE.harness), lm_eval/tasks/minerva_math/utils.py;
first in Lewkowycz et al., arXiv 2206.14858.
"""

from __future__ import annotations

from engine.contract.templates.template import Shot

SHOTS = (
    Shot(
        r"Find the domain of the expression  $\frac{\sqrt{x-2}}{\sqrt{5-x}}$.",
        "The expressions inside each square root must be non-negative. Therefore, $x-2 "
        r"\ge 0$, so $x\ge2$, and $5 - x \ge 0$, so $x \le 5$. Also, the denominator "
        "cannot be equal to zero, so $5-x>0$, which gives $x<5$. Therefore, the domain "
        r"of the expression is $\boxed{[2,5)}$."
        "\n"
        "Final Answer: The final answer is $[2,5)$. I hope it is correct.",
    ),
    Shot(
        r"If $\det \mathbf{A} = 2$ and $\det \mathbf{B} = 12,$ then find $\det "
        r"(\mathbf{A} \mathbf{B}).$",
        r"We have that $\det (\mathbf{A} \mathbf{B}) = (\det \mathbf{A})(\det "
        r"\mathbf{B}) = (2)(12) = \boxed{24}.$"
        "\n"
        "Final Answer: The final answer is $24$. I hope it is correct.",
    ),
    Shot(
        "Terrell usually lifts two 20-pound weights 12 times. If he uses two 15-pound "
        "weights instead, how many times must Terrell lift them in order to lift the "
        "same total weight?",
        r"If Terrell lifts two 20-pound weights 12 times, he lifts a total of $2\cdot "
        r"12\cdot20=480$ pounds of weight.  If he lifts two 15-pound weights instead "
        r"for $n$ times, he will lift a total of $2\cdot15\cdot n=30n$ pounds of "
        "weight.  Equating this to 480 pounds, we can solve for $n$:\n"
        r"\begin{align*}"
        "\n"
        r"30n&=480\\"
        "\n"
        r"\Rightarrow\qquad n&=480/30=\boxed{16}"
        "\n"
        r"\end{align*}"
        "\n"
        "Final Answer: The final answer is $16$. I hope it is correct.",
    ),
    Shot(
        "If the system of equations\n"
        "\n"
        r"\begin{align*}"
        "\n"
        r"6x-4y&=a,\\"
        "\n"
        "6y-9x &=b.\n"
        r"\end{align*}has a solution $(x, y)$ where $x$ and $y$ are both nonzero,"
        "\n"
        r"find $\frac{a}{b},$ assuming $b$ is nonzero.",
        r"If we multiply the first equation by $-\frac{3}{2}$, we obtain"
        "\n"
        "\n"
        r"$$6y-9x=-\frac{3}{2}a.$$Since we also know that $6y-9x=b$, we have"
        "\n"
        "\n"
        r"$$-\frac{3}{2}a=b\Rightarrow\frac{a}{b}=\boxed{-\frac{2}{3}}.$$"
        "\n"
        r"Final Answer: The final answer is $-\frac{2}{3}$. I hope it is correct.",
    ),
)
