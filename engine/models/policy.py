"""A policy: the weights that answer, with the tokenizer that reads and writes for them.

Loads the embedded model or any Hugging Face causal model by folder or hub id; with an adapter
(`engine.models.lora`) only that adapter trains and is saved. Knows no reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from engine.contract.errors import RLLoopError
from engine.contract.hub import unreachable
from engine.contract.model_folder import few_bits_problem
from engine.contract.rl.prompting import PromptingConfig
from engine.models import lora, tiny
from engine.models import precision as precisions
from engine.models.chat import ChatTemplate, Clock
from engine.models.finite import not_finite
from engine.models.loading import few_bits, misfit
from engine.models.precision import Precision
from engine.models.text import TextCodec
from engine.models.tokenizers import load_tokenizer
from engine.models.vocabulary import readable


@dataclass
class Policy:
    """`version` is the last step that moved these weights; 0 is the untrained policy."""

    model: Any
    """A transformers causal model; typed loosely because its stubs are."""
    tokenizer: PreTrainedTokenizerBase
    eos_ids: frozenset[int]
    """Each of them ends a completion."""
    version: int = 0
    chat: ChatTemplate | None = None
    """What its prompts are written with; None for prompts without a template."""
    lead: str = ""
    """White space that the chat template writes in front of an answer."""
    added_end: str | None = None
    """The chat template's end of a turn, where the model's own ends do not have it."""
    precision: Precision = "fp32"
    """Of the matrix products; what trains stays fp32."""

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def window(self) -> int | None:
        """Most tokens of a prompt with its completion; None where the config does not say."""
        found = getattr(self.model.config, "max_position_embeddings", None)
        return found if isinstance(found, int) and found > 0 else None

    @property
    def known_tokens(self) -> int:
        """Ids below this have an embedding."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    def computing(self) -> AbstractContextManager[Any]:
        """The block each pass through the model stands in; no weight changes inside it."""
        return precisions.computing(self.precision, self.device)

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """What training changes, by name; shared weights once."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @cached_property
    def codec(self) -> TextCodec:
        return TextCodec(self.tokenizer, self.chat.around_turns if self.chat else ())

    def encode(self, prompt: str) -> tuple[int, ...]:
        """Ids of a bare prompt, with what the tokenizer puts in front of a text."""
        ids = self.codec.encode(self.codec.hide(prompt), begins=True)
        return tuple(readable(ids, self.known_tokens, self.tokenizer))

    def encode_answer(self, answer: str, before: Sequence[int] = ()) -> tuple[int, ...]:
        """Ids of a text that continues the prompt `before`, with the end token behind it."""
        ids = self.codec.encode_after(before, self.lead + answer)
        return tuple(readable([*ids, self.end_id], self.known_tokens, self.tokenizer))

    @property
    def end_id(self) -> int:
        """The end that an answer is taught with: that of the chat template in use comes first."""
        if self.chat is not None and self.chat.turn.end is not None:
            return int(self.tokenizer.convert_tokens_to_ids(self.chat.turn.end))  # type: ignore[arg-type]
        own = self.tokenizer.eos_token_id
        return min(self.eos_ids) if own is None else int(own)

    def decode(self, completion_ids: Sequence[int], before: Sequence[int] = ()) -> str:
        """Text of a completion of the prompt `before`, without the end tokens at its end."""
        ends = {*self.eos_ids, self.tokenizer.pad_token_id}
        ids = list(completion_ids)
        while ids and ids[-1] in ends:
            ids.pop()
        return self.codec.continuation(before, ids)

    def speak(self, chat: ChatTemplate, *, prefixed: bool = False) -> None:
        """Take up the chat template that the prompts are written with: its turn's end is an end.

        `prefixed`: the beginning of each answer stands in the prompt. A checkpoint is saved with
        that end, so that a server ends there too.
        """
        self.chat, self.lead = chat, "" if prefixed else chat.turn.lead
        self.__dict__.pop("codec", None)
        if chat.turn.end is not None and self.end_id not in self.eos_ids:
            self.added_end = chat.turn.end
            self.eos_ids |= {self.end_id}
            self.model.generation_config.eos_token_id = sorted(self.eos_ids)

    def save(self, folder: Path) -> None:
        """A plain Hugging Face folder `model` inside `folder`, or a PEFT one `adapter`."""
        if lora.adapted(self.model):
            lora.save(self.model, folder / "adapter")
            return
        target = folder / "model"
        # By transformers alone: it knows which buffers are weights too, and the names on disk.
        self.model.save_pretrained(target)
        self.tokenizer.save_pretrained(target)

    def load(self, folder: Path, version: int) -> None:
        """Take over the weights that `save(folder)` wrote; parameters keep their identity."""
        self.version = version
        if lora.adapted(self.model):
            lora.load(self.model, folder / "adapter")
            return
        saved = type(self.model).from_pretrained(folder / "model", dtype=torch.float32)
        weights = saved.state_dict()
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(weights[name])


class Snapshot:
    """A frozen copy, on the CPU, of what training changes: the KL reference.

    Works for full and adapter training alike.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._frozen: dict[str, Tensor] = {
            name: parameter.detach().cpu().clone() for name, parameter in policy.trainable().items()
        }

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the policy's model has the frozen weights. Use under no_grad."""
        trainable = self._policy.trainable()
        current = {name: parameter.data for name, parameter in trainable.items()}
        try:
            for name, parameter in trainable.items():
                parameter.data = self._frozen[name].to(parameter.device)
            yield
        finally:
            for name, parameter in trainable.items():
                parameter.data = current[name]


def build(base: str, seed: int) -> Policy:
    """fp32 policy of an embedded name, a folder or a hub id, on the GPU when there is one.

    Raises RLLoopError when it cannot be loaded.
    """
    # A bar that was drawn last would stand in the log as what the run said last.
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if base == tiny.NAME:
        return _policy(tiny.build_model(seed), tiny.build_tokenizer())
    away = unreachable(base)
    if away is not None:
        raise _unloadable(base, away)
    try:
        tokenizer = load_tokenizer(base)
    except _LOADING_ERRORS as error:
        raise _unloadable(base, _reason(error)) from error
    model = causal_model(base)
    require_finite("base", base, model.state_dict())
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        # without its file transformers makes an empty tokenizer up
        raise _unloadable(base, "its tokenizer knows no word")
    policy = _policy(model, tokenizer)
    if not policy.eos_ids:
        raise _unloadable(base, "neither its generation config nor its tokenizer has an end token")
    return policy


def take_template(policy: Policy, prompting: PromptingConfig, clock: Clock) -> None:
    """With a chat template asked for, the end of its turns is an end of the completions."""
    if not prompting.skip_chat_template and policy.tokenizer.chat_template:
        chat = ChatTemplate(policy.tokenizer, prompting.template_variables, clock)
        policy.speak(chat, prefixed=bool(prompting.assistant_prefix))


def causal_model(base: str, *, device: str | None = None) -> Any:
    """The fp32 model of a folder or a hub id. On the device "meta" no weight is read, and all that
    can be told from their names and shapes is. Raises RLLoopError.
    """
    try:
        packed = few_bits(base)
        if packed is not None:
            raise RLLoopError([few_bits_problem("base", base, packed)])
        # Never device_map="auto": on unified memory it leaves weights behind on "meta".
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            base,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # it would name none of them
            device_map=device,
        )
    except _LOADING_ERRORS as error:
        raise _unloadable(base, _reason(error)) from error
    model, loading = loaded
    wrong = misfit(model, loading)
    if wrong is not None:
        remedy = "correct its config.json, or name a folder that was saved whole"
        raise RLLoopError.of("base", base, f"is no whole model: {wrong}", remedy)
    if getattr(model.config, "output_router_logits", False):
        # Of use to the balancing loss of a pretraining alone; the pass breaks on parts of a text.
        model.config.output_router_logits = False
    return model


def _reason(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def require_finite(field: str, place: str, tensors: Mapping[str, Tensor]) -> None:
    """Raises RLLoopError for weights of `field` that are no numbers."""
    broken = not_finite(tensors)
    if broken is not None:
        raise RLLoopError.of(
            field, place, f"has {broken}", "save it again from where its weights are numbers"
        )


_LOADING_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    RuntimeError,
    ImportError,
    TypeError,
    AttributeError,
    SafetensorError,
)
"""What transformers was seen to raise for folders that are no model."""


def _unloadable(base: str, reason: str) -> RLLoopError:
    return RLLoopError.of(
        "base",
        base,
        f"cannot be loaded: {reason}",
        "name a folder with a causal language model and its tokenizer",
    )


def _policy(model: Any, tokenizer: Any) -> Policy:
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    model.eval()
    return Policy(model, tokenizer, eos_ids(model, tokenizer))


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every end token of the generation config, and the tokenizer's own."""
    configured = model.generation_config.eos_token_id
    found = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in (*found, tokenizer.eos_token_id) if i is not None)
