"""The three worked examples of mbpp.

From lm-evaluation-harness 0.4.13 (MIT, LICENSE.harness), lm_eval/tasks/mbpp/utils.py; first in
Austin et al., arXiv 2108.07732. Their lines end as there: \\r\\n.
"""

from __future__ import annotations

from engine.contract.templates.template import Shot

SHOTS = (
    Shot(
        "Write a function to find the similar elements from the given two tuple lists. "
        "Your code should pass these tests:\n"
        "\n"
        "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)\n"
        "assert similar_elements((1, 2, 3, 4),(5, 4, 3, 7)) == (3, 4)\n"
        "assert similar_elements((11, 12, 14, 13),(17, 15, 14, 13)) == (13, 14)",
        "def similar_elements(test_tup1, test_tup2):\r\n"
        "  res = tuple(set(test_tup1) & set(test_tup2))\r\n"
        "  return (res) \n"
        "[DONE]",
    ),
    Shot(
        "Write a python function to identify non-prime numbers. Your code should pass "
        "these tests:\n"
        "\n"
        "assert is_not_prime(2) == False\n"
        "assert is_not_prime(10) == True\n"
        "assert is_not_prime(35) == True",
        "import math\r\n"
        "def is_not_prime(n):\r\n"
        "    result = False\r\n"
        "    for i in range(2,int(math.sqrt(n)) + 1):\r\n"
        "        if n % i == 0:\r\n"
        "            result = True\r\n"
        "    return result\n"
        "[DONE]",
    ),
    Shot(
        "Write a function to find the largest integers from a given list of numbers "
        "using heap queue algorithm. Your code should pass these tests:\n"
        "\n"
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],3)==[85, 75, "
        "65] \n"
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],2)==[85, 75] \n"
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],5)==[85, 75, "
        "65, 58, 35]",
        "import heapq as hq\r\n"
        "def heap_queue_largest(nums,n):\r\n"
        "  largest_nums = hq.nlargest(n, nums)\r\n"
        "  return largest_nums\n"
        "[DONE]",
    ),
)
