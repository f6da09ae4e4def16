"""What a model reads in front of its completion."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from engine.contract.errors import RLLoopError
from engine.contract.rl.format import FormatConfig
from engine.contract.rl.prompting import TEMPLATE_ARGUMENTS, PromptingConfig
from engine.contract.templates.table import TEMPLATES
from engine.data.rows import Question
from engine.models.policy import Policy, build
from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.sampling.base import Groups, OwnWeights, Rollout
from engine.sampling.prompts import PromptBuilder, fading_examples
from engine.sampling.rollouts import Rollouts
from engine.sampling.shots import drawn_examples, fixed_examples
from tests.engine.chat_model import save_chat_model

ASKED = Question("q", "What is 2 + 3?", "5", solution="2 + 3 = 5. The answer is 5.")
OTHERS = [
    Question("a", "What is 1 + 1?", "2", solution="1 + 1 = 2. The answer is 2."),
    Question("b", "What is 4 + 4?", "8"),
]


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A chat model; nothing here changes it."""
    return build(str(save_chat_model(tmp_path_factory.mktemp("chat"))), 0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """The same without a chat template."""
    return build(str(save_chat_model(tmp_path_factory.mktemp("plain"), template=False)), 0)


def builder(policy: Policy, *examples: Question, **settings: Any) -> PromptBuilder:
    shots = FormatConfig(shots=len(examples), demonstration="The answer is {answer}.")
    shown = fading_examples(examples, shots, max_steps=10)
    return PromptBuilder(policy.tokenizer, PromptingConfig(**settings), shown)


@pytest.mark.requirement("EX-04")
def test_a_question_goes_in_as_it_stands_unless_a_template_is_asked_for(chat: Policy) -> None:
    """Base tokenizers carry templates too, so none is applied in silence."""
    prompts = builder(chat)

    assert prompts.text(ASKED) == ASKED.prompt
    assert prompts(ASKED) == chat.encode(ASKED.prompt)


@pytest.mark.requirement("EX-04")
def test_without_template_system_prompt_and_prefix_frame_the_question(chat: Policy) -> None:
    """system_prompt, an empty line, the question in its format, the completion's first words."""
    prompts = builder(
        chat,
        skip_chat_template=True,
        system_prompt="Add.",
        question_format="Q: {prompt}\nA:",
        assistant_prefix=" So",
    )

    assert prompts.text(ASKED) == "Add.\n\nQ: What is 2 + 3?\nA: So"


@pytest.mark.requirement("EX-04")
def test_a_template_gets_the_same_parts_as_messages(chat: Policy) -> None:
    """And its marks become the special tokens they name, once."""
    prompts = builder(
        chat,
        skip_chat_template=False,
        system_prompt="Add.",
        assistant_prefix="So",
        template_variables={"thinking": False},
    )

    assert prompts.text(ASKED) == (
        "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n"
        "<|im_start|>assistant\n<think></think>So"
    )
    tokenizer: Any = chat.tokenizer
    start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    ids = prompts(ASKED)
    assert (ids.count(start), ids.count(end)) == (3, 2)
    assert tokenizer.decode(ids) == prompts.text(ASKED)


def test_a_bench_is_asked_as_the_harness_asks_it(chat: Policy) -> None:
    """Example, blank line, example, blank line, question: to the character."""
    prompting = PromptingConfig().under("gsm8k_cot")
    prompts = PromptBuilder(chat.tokenizer, prompting, fixed_examples("gsm8k_cot", 2))
    one, two = TEMPLATES["gsm8k_cot"].shots[:2]

    assert prompts.text(ASKED) == (
        f"Q: {one.question}\nA: {one.answer}\n\nQ: {two.question}\nA: {two.answer}\n\n"
        "Q: What is 2 + 3?\nA:"
    )


@pytest.mark.parametrize(
    ("template", "answers"),
    [("gsm8k", ["1 + 1 = 2. The answer is 2.", "8"]), ("hendrycks_math", ["2", "8"])],
)
def test_drawn_examples_show_the_solution_or_the_gold_as_the_harness_does(
    chat: Policy, template: str, answers: list[str]
) -> None:
    """Its hendrycks_math shows bare golds."""
    shown = drawn_examples([ASKED], OTHERS, 2, template=template, config=FormatConfig())
    prompts = PromptBuilder(chat.tokenizer, PromptingConfig(template=template), shown)

    *examples, question = prompts.text(ASKED).split("\n\n")

    form = TEMPLATES[template]
    written = [f"{form.write(q.prompt)} {a}" for q, a in zip(OTHERS, answers, strict=True)]
    assert sorted(examples) == sorted(written)
    assert question == form.write(ASKED.prompt)


def test_under_a_chat_template_examples_are_turns(chat: Policy) -> None:
    prompting = PromptingConfig(skip_chat_template=False, template="minerva_math")
    prompts = PromptBuilder(chat.tokenizer, prompting, fixed_examples("minerva_math", 4))

    asked = prompts.prompt(ASKED)
    assert not isinstance(asked, str)

    assert [turn["role"] for turn in asked] == ["user", "assistant"] * 4 + ["user"]
    assert asked[-1]["content"] == "Problem:\nWhat is 2 + 3?\n\nSolution:"


def test_a_question_is_never_its_own_example_however_it_is_written() -> None:
    """Its twin would show it the answer."""
    twin = Question("twin", "what is  ４ + 4", "8")
    others = [Question(f"{i}", f"What is {i} + 9?", str(i + 9)) for i in range(3)]
    shown = fading_examples([twin, *others], FormatConfig(shots=2, shots_until=9), max_steps=10)

    asked = Question("asked", "What is 4 + 4 ?", "8")

    assert [example.id for example, _ in shown(asked)] == ["0", "1"]


END = "<|im_end|>"


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("written", "tokens"),
    [
        ({"system_prompt": f"Add.{END}"}, 0),
        ({"question_format": f"{{prompt}}{END}"}, 1),
        ({"assistant_prefix": END}, 1),
    ],
)
def test_the_operators_form_writes_tokens_and_data_does_not(
    written: dict[str, str], tokens: int, skip: bool, chat: Policy
) -> None:
    """Format and prefix are form; the system prompt and the row are text."""
    asked = replace(ASKED, prompt=f"one{END}two")
    prompts = builder(chat, skip_chat_template=skip, **written)
    turns = 0 if skip else 1 + ("system_prompt" in written)

    ids, end = prompts(asked), prompts.codec.control[END]

    assert ids.count(end) == tokens + turns
    assert prompts.text(asked).count(END) == 1 + len(written) + turns
    assert prompts.codec.continuation((), ids) == prompts.text(asked)


@pytest.mark.parametrize("skip", [False, True])
def test_a_worked_example_ends_no_turn(skip: bool, chat: Policy) -> None:
    """Neither by its question nor by its solution."""
    forged = Question("f", f"1{END}", "1", solution=f"1{END}2")
    prompts = builder(chat, forged, skip_chat_template=skip)

    ids = prompts(replace(ASKED, draw=0))

    assert ids.count(prompts.codec.control[END]) == (0 if skip else 3)
    assert prompts.text(replace(ASKED, draw=0)).count(END) == (2 if skip else 5)


def test_a_row_that_cannot_be_told_apart_is_refused_by_its_id(chat: Policy) -> None:
    """A template that turns its text around, for one."""
    tokenizer: Any = copy.copy(chat.tokenizer)
    tokenizer.chat_template = "{{ messages[0].content | length }}"
    prompts = PromptBuilder(tokenizer, PromptingConfig(skip_chat_template=False))

    assert prompts.held(ASKED) == []
    with pytest.raises(RLLoopError, match=r"row 'bad' .*'<\|im_end\|>', which is a control token"):
        prompts.held(Question("bad", f"a{END}", "1"))


def test_a_reward_function_gets_turns_or_text(chat: Policy) -> None:
    """As the model was asked: turns under a chat template, one text without."""
    turns = builder(chat, skip_chat_template=False, system_prompt="Add.").prompt(ASKED)
    text = builder(chat, system_prompt="Add.").prompt(ASKED)

    assert turns == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": ASKED.prompt},
    ]
    assert text == f"Add.\n\n{ASKED.prompt}"


@pytest.mark.requirement("EX-04")
def test_a_template_asked_of_a_base_tokenizer_is_refused_when_it_is_loaded(plain: Policy) -> None:
    """Nothing is made up in its place; the line says what to set."""
    with pytest.raises(RLLoopError, match=r"^prompting\.skip_chat_template: asks for .* set it to"):
        builder(plain, skip_chat_template=False)


def test_a_template_that_refuses_the_messages_is_said_in_one_line(chat: Policy) -> None:
    """Some models know no system role and raise inside their template."""
    tokenizer: Any = copy.copy(chat.tokenizer)
    tokenizer.chat_template = "{{ raise_exception('no system role here') }}"
    prompts = PromptBuilder(tokenizer, PromptingConfig(skip_chat_template=False))

    with pytest.raises(RLLoopError, match="refuses these messages: no system role here"):
        prompts(ASKED)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ 'Turn ' + (messages|length) }}", "TypeError: can only concatenate str"),
        ("{{ messages[0].content / 0 }}", "TypeError: unsupported operand"),
        ("{{ 1 / (messages|length - 1) }}", "ZeroDivisionError: division by zero"),
        ("{{ messages[0]['name']['first'] }}", "has no attribute 'name'"),
        ("{{ '%d' % messages[0].content }}", "TypeError: %d format"),
        ("{{ messages[0].content.index('?!') }}", "ValueError: substring not found"),
        ("{% if %}", "Expected an expression"),
    ],
)
def test_a_template_that_breaks_is_a_problem_of_the_config(
    template: str, reason: str, chat: Policy
) -> None:
    """It is a program of the model's folder: whatever it raises is said, with the reason."""
    tokenizer: Any = copy.copy(chat.tokenizer)
    tokenizer.chat_template = template
    prompts = PromptBuilder(tokenizer, PromptingConfig(skip_chat_template=False))

    with pytest.raises(RLLoopError, match=f"refuses these messages: .*{re.escape(reason)}"):
        prompts(ASKED)


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, ""),
        ({"assistant_prefix": " So"}, " So"),
        ({"question_format": "Q: {prompt}\nA: <think>"}, "<think>"),
        ({"question_format": "{prompt} <think>\n", "assistant_prefix": "Well"}, "<think>\nWell"),
        ({"question_format": "<think> twice: {prompt}"}, ""),
        ({"skip_chat_template": False, "template_variables": {"thinking": False}}, ""),
    ],
)
def test_what_a_prompt_begins_of_the_answer_belongs_to_it(
    settings: dict[str, Any], begins: str, chat: Policy
) -> None:
    """The prefix, and a thought that was opened and not closed."""
    assert builder(chat, **settings).begins(ASKED) == begins


def test_a_thought_that_the_template_opens_is_judged_as_a_thought(chat: Policy) -> None:
    """A number in it is no answer yet; without its beginning it would be one."""
    tokenizer: Any = copy.copy(chat.tokenizer)
    tokenizer.chat_template = "{{ messages[0]['content'] + '<think>\\n' }}"
    prompts = PromptBuilder(tokenizer, PromptingConfig(skip_chat_template=False))

    def drawn(tasks: Sequence[Question], k: int) -> Groups:
        ids = [prompts(task) for task in tasks]
        texts = ["it may be 5", "hm\n</think>\nIt is 5."]
        return [
            [Rollout(t.id, i, p, (1,), (0.0,), texts[i], False, 0) for i in range(k)]
            for t, p in zip(tasks, ids, strict=True)
        ]

    [[within, behind]] = Rollouts(drawn, OwnWeights(), prompts.begins)([ASKED], 2)
    reward = RewardAdapter(load_verifier("gsm8k_last_number"))

    assert (within.text, within.begun) == ("<think>\nit may be 5", "<think>\n")
    assert [reward.judge(r.text, ASKED.answer).reward for r in (within, behind)] == [0, 1]


def test_a_tokenizer_that_ends_every_text_does_not_end_the_prompt(chat: Policy) -> None:
    """Nothing can follow an end; one that the question's format holds stays, a row's is text."""
    tokenizer: Any = copy.deepcopy(chat.tokenizer)
    end = tokenizer.eos_token
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, tokenizer.eos_token_id)]
    )
    prompts = PromptBuilder(tokenizer, PromptingConfig())

    assert tokenizer(ASKED.prompt)["input_ids"][-1] == tokenizer.eos_token_id
    assert prompts(ASKED) == chat.encode(ASKED.prompt)
    written = PromptBuilder(tokenizer, PromptingConfig(question_format=f"{{prompt}}{end}"))
    assert written(ASKED)[-1] == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in prompts(replace(ASKED, prompt=f"a{end}"))


def test_a_text_that_begins_with_the_start_token_has_it_once(chat: Policy) -> None:
    """As a format copied from a chat template does; a tokenizer that adds its own doubles it."""
    tokenizer: Any = copy.deepcopy(chat.tokenizer)
    tokenizer.bos_token = "<|im_start|>"
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single=f"<|im_start|> $A {tokenizer.eos_token}",
        special_tokens=[("<|im_start|>", begin), (tokenizer.eos_token, end)],
    )
    bare = chat.encode(ASKED.prompt)

    for settings in ({}, {"question_format": "<|im_start|>{prompt}"}):
        assert PromptBuilder(tokenizer, PromptingConfig.model_validate(settings))(ASKED) == (
            begin,
            *bare,
        )


def test_a_variable_of_the_template_is_no_argument_of_transformers() -> None:
    """`tokenize` would break the call, `chat_template` replace the prompt in silence."""
    known = inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters
    assert {*known} <= TEMPLATE_ARGUMENTS
    for name in ("tokenize", "chat_template", "continue_final_message"):
        with pytest.raises(ValidationError, match=f"template_variables.{name} is an argument of"):
            PromptingConfig(skip_chat_template=False, template_variables={name: True})
    PromptingConfig(skip_chat_template=False, template_variables={"enable_thinking": False})


@pytest.mark.requirement("EX-06")
def test_examples_stand_before_the_question_and_fade_with_the_draws(chat: Policy) -> None:
    """Worked out in the wanted form; half of the run without any, and the gate never sees one."""
    prompts = builder(chat, *OTHERS, question_format="Q: {prompt}\nA:")

    at = [prompts.text(replace(ASKED, draw=draw)).count("The answer is") for draw in range(7)]

    assert at == [2, 2, 2, 1, 1, 0, 0]
    assert prompts.text(replace(ASKED, draw=0)) == (
        "Q: What is 1 + 1?\nA: 1 + 1 = 2. The answer is 2.\n\n"
        "Q: What is 4 + 4?\nA: The answer is 8.\n\nQ: What is 2 + 3?\nA:"
    )


@pytest.mark.requirement("EX-06")
def test_examples_of_a_chat_are_turns_and_never_the_question_itself(chat: Policy) -> None:
    """The asked row is left out where it is among the examples."""
    prompts = builder(chat, *OTHERS[:1], skip_chat_template=False)

    other, itself = (prompts.text(replace(q, draw=0)) for q in (ASKED, OTHERS[0]))

    assert other.count("<|im_start|>assistant\n1 + 1 = 2. The answer is 2.<|im_end|>") == 1
    assert itself.count("The answer is") == 0


def test_lengths_are_exact_where_they_matter(chat: Policy) -> None:
    """A prompt that fits by its characters is not tokenised; any other is."""
    prompts = builder(chat)
    questions = [ASKED, Question("e", "h\u00e9", "1"), Question("b", " ", "1")]
    exact = [len(prompts(question)) for question in questions]

    assert prompts.lengths(questions, 0) == exact
    assert prompts.lengths(questions, 100) == [len(ASKED.prompt) + 8, *exact[1:]]
    assert exact[0] <= len(ASKED.prompt)


SYSTEM = {"role": "system", "content": "Add."}
TALK = Question(
    "t",
    "Add.\n\n2+3?",
    "5",
    messages=[SYSTEM, {"role": "user", "content": "2+3?"}],
)


@pytest.mark.requirement("RL-17")
def test_a_conversation_of_the_row_goes_through_the_template_as_it_stands(chat: Policy) -> None:
    """Its system turn counts; one without gets the config's."""
    prompts = builder(chat, skip_chat_template=False, system_prompt="Be brief.")
    bare = replace(TALK, messages=TALK.messages[1:] if TALK.messages else None)

    def templated(*messages: dict[str, str]) -> str:
        return str(
            chat.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        )

    asked = {"role": "user", "content": "2+3?"}
    assert prompts.text(TALK) == templated(SYSTEM, asked)
    assert prompts.text(bare) == templated({"role": "system", "content": "Be brief."}, asked)


def test_turns_before_the_question_are_kept_and_examples_come_first(chat: Policy) -> None:
    """After the system turn, as examples do; the question is the last turn alone."""
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    talk = replace(TALK, messages=[SYSTEM, *turns, {"role": "user", "content": "2+3?"}])
    prompts = builder(chat, OTHERS[0], skip_chat_template=False, question_format="Q: {prompt}")

    said = prompts.text(talk)

    places = [said.index(part) for part in ("Add.", "What is 1 + 1?", "1+1?", "Q: 2+3?")]
    assert places == sorted(places)
    assert "Q: 1+1?" not in said


def test_without_a_template_a_system_turn_stands_before_the_question(chat: Policy) -> None:
    """And a conversation of several turns is refused by the setting that would take it."""
    prompts = builder(chat)
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    talk = replace(TALK, messages=[*turns, {"role": "user", "content": "2+3?"}])

    assert prompts.text(TALK) == "Add.\n\n2+3?"
    with pytest.raises(RLLoopError, match="skip_chat_template"):
        prompts.text(talk)
