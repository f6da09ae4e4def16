"""Tokenizers whose config holds a list of extra special tokens, and those of sentencepiece."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import sentencepiece
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from engine.__main__ import main
from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.registry import validate
from engine.contract.run_dir import Abort, AbortReason, ExitCode, RunDir
from engine.data import word_problems
from engine.models import tiny
from engine.models.policy import build
from engine.models.tokenizers import load_tokenizer
from engine.run.shadow import shadows_in
from engine.sampling.vllm.launch import same_weights
from tests.engine.chat_model import END, START, STOP, save_chat_model
from tests.engine.stage2.conftest import ab_recipe, shapes_file, vl_folder

__all__ = ["ab_recipe", "shapes_file", "vl_folder"]

pytestmark = pytest.mark.requirement("RL-13")

ROOT = Path(__file__).resolve().parents[3]
OBJECTS = [{"content": "<|end|>", "lstrip": False, "special": True}]
"""Tokens as some exports write them out, without the mark by which Transformers knows them."""
Events = Callable[..., list[Event]]


def listing(folder: Path, listed: Any) -> Path:
    """The folder, with this in its tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"extra_special_tokens": listed}))
    return folder


def copied(source: Path, target: Path, listed: Any) -> Path:
    return listing(Path(shutil.copytree(source, target)), listed)


@pytest.fixture
def base(base_folder: Path, tmp_path: Path) -> Path:
    """A model whose tokenizer cannot be loaded as it is."""
    return copied(base_folder, tmp_path / "an export", OBJECTS)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where shadows of the test go."""
    with shadows_in(tmp_path / "shadows", lambda _code, _text: None):
        yield tmp_path / "shadows"


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


# --- what breaks, and what does not ---


@pytest.mark.parametrize("listed", [OBJECTS, [7], [None], ["<|end|>", ["<|end|>"]]])
def test_a_list_of_other_things_than_text_breaks_the_loading_on_our_pins(
    base_folder: Path, tmp_path: Path, place: Path, listed: Any
) -> None:
    """Of Transformers itself; through the shadow the tokenizer is the one that it was."""
    broken = copied(base_folder, tmp_path / "broken", listed)
    with pytest.raises(TypeError):
        AutoTokenizer.from_pretrained(broken)

    found = load_tokenizer(str(broken))

    assert found.get_vocab() == tiny.build_tokenizer().get_vocab()
    assert found("17+25=").input_ids == tiny.build_tokenizer()("17+25=").input_ids
    assert len(list(place.iterdir())) == 1


def test_text_that_no_file_knows_becomes_tokens_without_an_embedding(
    base_folder: Path, tmp_path: Path, place: Path
) -> None:
    """Transformers loads it, and no row of the model reads a prompt with such a token."""
    longer = copied(base_folder, tmp_path / "longer", ["<|end|>", "<|none|>"])
    alone: Any = AutoTokenizer.from_pretrained(longer)
    rows = json.loads((longer / "config.json").read_bytes())["vocab_size"]
    assert alone.convert_tokens_to_ids("<|none|>") == rows

    found = load_tokenizer(str(longer))

    assert len(found) == rows
    assert len(list(place.iterdir())) == 1


@pytest.mark.parametrize(
    "listed",
    [
        [],
        [START, STOP],
        [{"__type": "AddedToken", "content": START, "special": True}],
        {"image_token": START},
    ],
    ids=["empty", "text", "marked objects", "named"],
)
def test_what_transformers_reads_rightly_has_no_shadow(
    tmp_path: Path, place: Path, listed: Any
) -> None:
    """A list of text is how version 5 itself writes a tokenizer's special tokens."""
    folder = listing(save_chat_model(tmp_path / "chat"), listed)

    found = load_tokenizer(str(folder))

    assert found.convert_tokens_to_ids([END, START, STOP]) == [600, 601, 602]
    assert not place.exists()


@pytest.mark.parametrize("text", ["{", "[1, 2]", ""])
def test_a_config_that_is_no_json_is_named(base: Path, text: str) -> None:
    """At the door, and by whoever loads it."""
    (base / "tokenizer_config.json").write_text(text)

    with pytest.raises(ConfigError, match=r"tokenizer_config\.json"):
        validate("rl_run", {"base": str(base)})
    with pytest.raises(ConfigError, match=r"cannot be loaded: its tokenizer_config\.json"):
        build(str(base), seed=0)


# --- the shadow ---


def test_a_shadow_links_every_file_and_mends_one(base: Path, place: Path) -> None:
    """Of a source that nobody may write, with a space in its name and a folder inside."""
    (base / "1_Pooling").mkdir()
    (base / "1_Pooling" / "config.json").write_text("{}")
    before = state_of_tree(base)
    for path in (base / "tokenizer_config.json", base):
        path.chmod(path.stat().st_mode & ~0o222)

    load_tokenizer(str(base))

    [shadow] = place.iterdir()
    assert {p.name for p in shadow.iterdir()} == {p.name for p in base.iterdir()}
    linked = {p.name for p in shadow.iterdir() if p.is_symlink()}
    assert linked == {p.name for p in base.iterdir()} - {"tokenizer_config.json"}
    assert all(p.resolve() == base / p.name for p in shadow.iterdir() if p.is_symlink())
    mended = json.loads((shadow / "tokenizer_config.json").read_bytes())
    told = json.loads((base / "tokenizer_config.json").read_bytes())
    assert mended == {k: v for k, v in told.items() if k != "extra_special_tokens"}
    assert state_of_tree(base) == before
    assert same_weights(str(shadow), str(base))


def state_of_tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_source_that_is_a_link_is_shadowed_where_it_stands(
    base: Path, tmp_path: Path, place: Path
) -> None:
    """The link may lead elsewhere tomorrow."""
    link = tmp_path / "current"
    link.symlink_to(base)

    load_tokenizer(str(link))
    link.unlink()

    [shadow] = place.iterdir()
    assert (shadow / "model.safetensors").resolve() == base / "model.safetensors"


def test_a_shadow_is_whole_or_not_there(
    base: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failure left is no shadow, and the next attempt makes it."""

    def full(_self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="No space left"):
            load_tokenizer(str(base))
    assert list(place.iterdir()) == []

    assert load_tokenizer(str(base)) is not None


def test_a_shadow_follows_its_source(base: Path, place: Path) -> None:
    """An attempt may be run again by hand, with another config beside the same weights."""
    load_tokenizer(str(base))
    (base / "new.json").write_text("{}")
    listing(base, [7])

    load_tokenizer(str(base))

    [shadow] = place.iterdir()
    assert (shadow / "new.json").is_symlink()


def test_without_an_attempt_a_shadow_is_temporary(base: Path) -> None:
    """A look at a config, and the tools, have no run directory."""
    policy = build(str(base), seed=0)

    assert policy.tokenizer.vocab_size == tiny.build_tokenizer().vocab_size


def test_a_hub_model_is_shadowed_from_its_cache(
    base: Path, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose files are links themselves."""
    model = tmp_path / "hub" / "models--org--export"
    blobs, snapshot = model / "blobs", model / "snapshots" / ("0a1b" * 10)
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for path in base.iterdir():
        shutil.copy(path, blobs / path.name)
        (snapshot / path.name).symlink_to(os.path.relpath(blobs / path.name, snapshot))
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(snapshot.name)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(model.parent))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    found = load_tokenizer("org/export", cache_dir=str(model.parent))

    assert found.get_vocab() == tiny.build_tokenizer().get_vocab()
    [shadow] = place.iterdir()
    assert shadow.name.startswith(snapshot.name)
    assert (shadow / "tokenizer.json").resolve() == blobs / "tokenizer.json"


# --- in runs ---


def shadows(run: RunDir, attempt: int = 1) -> list[Path]:
    place = run.attempt(attempt).shadows
    return list(place.iterdir()) if place.exists() else []


def test_a_run_reads_such_a_model_and_each_attempt_makes_its_shadow(
    base: Path, recipe: dict[str, Any], new_attempt: Callable[..., RunDir], events: Events
) -> None:
    """Stopped before its first step, and resumed where the first shadow is gone."""
    raw = recipe | {"base": str(base), "max_steps": 2}
    before = state(base)
    run = new_attempt(raw)
    run.attempt(1).request_abort(Abort(reason=AbortReason.REQUEUE))

    assert main(["run", str(run.root)]) == ExitCode.ABORTED
    shutil.rmtree(run.attempt(1).shadows)
    new_attempt(raw)
    assert main(["run", str(run.root)]) == ExitCode.DONE

    said = [e["text"] for e in events(run, "note") if e["code"] == "SHADOW"]
    assert len(said) == 2
    assert all(str(base) in text and "extra_special_tokens" in text for text in said)
    [shadow] = shadows(run, 2)
    assert str(shadow) in said[1]
    assert state(base) == before
    saved: Any = AutoTokenizer.from_pretrained(run.selected / "model")
    assert saved.get_vocab() == tiny.build_tokenizer().get_vocab()


@pytest.mark.parametrize("kind", ["eval_rerun", "requant"])
def test_every_kind_of_text_reads_such_a_model(
    base: Path,
    eval_recipe: dict[str, Any],
    requant_recipe: dict[str, Any],
    new_attempt: Callable[..., RunDir],
    kind: str,
) -> None:
    """Through a shadow of its own attempt."""
    recipe = eval_recipe if kind == "eval_rerun" else requant_recipe
    run = new_attempt(recipe | {"base": str(base)}, kind=kind)

    assert main(["run", str(run.root)]) == ExitCode.DONE
    assert len(shadows(run)) == 1


def test_stage_2_reads_such_a_model(
    vl_folder: Path,
    ab_recipe: dict[str, Any],
    tmp_path: Path,
    new_attempt: Callable[..., RunDir],
) -> None:
    folder = copied(vl_folder, tmp_path / "vl", OBJECTS)
    raw = ab_recipe | {"model": {"path": str(folder), "tuning": "full"}}
    raw |= {"training": raw["training"] | {"max_steps": 2, "eval_steps": 2}}
    run = new_attempt(raw, kind="stage2_ab")

    assert main(["run", str(run.root)]) == ExitCode.DONE
    assert len(shadows(run)) == 1


# --- sentencepiece, and what spreads a model by itself ---


def test_a_tokenizer_of_sentencepiece_alone_loads(tmp_path: Path) -> None:
    """With what the extra `engine` installs, and nothing else."""
    texts = [f"{question} {solution}" for _, question, _, solution in word_problems.rows()[:300]]
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=made,
        vocab_size=330,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    (tmp_path / "tokenizer.model").write_bytes(made.getvalue())
    told = {"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>", "bos_token": "<s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    config = LlamaConfig(vocab_size=330, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    LlamaForCausalLM(config).save_pretrained(tmp_path)

    tokenizer: Any = build(str(tmp_path), seed=0).tokenizer

    text = "Tom has 12 apples, é"
    pieces = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    assert tokenizer(text, add_special_tokens=False).input_ids == pieces.encode(text)
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {requirement.partition(">=")[0] for requirement in extras["engine"]}
    assert {"sentencepiece", "protobuf"} <= named


SPREADING = {"auto", "balanced", "balanced_low_0", "sequential"}


def device_maps(path: Path) -> Iterator[str]:
    """How calls and dictionaries of a file say where a model goes, as they spell it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.keyword) and node.arg in {"device_map", "device"}:
            yield ast.unparse(node.value)
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and ast.unparse(key) == "'device_map'":
                    yield ast.unparse(value)


def test_nothing_spreads_a_model_over_devices_by_itself(base_folder: Path) -> None:
    """On unified memory `device_map="auto"` leaves weights behind on "meta"."""
    for room in ("engine", "worker", "app", "tools", "bench"):
        for path in (ROOT / room).rglob("*.py"):
            assert not SPREADING & {told.strip("'") for told in device_maps(path)}, path

    model = build(str(base_folder), seed=0).model
    assert getattr(model, "hf_device_map", None) is None
    assert {p.device.type for p in model.parameters()} <= {"cpu", "cuda"}
