"""Unmodified models of Hugging Face's transformers, with small sizes: 20 steps of each equal eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402

pytestmark = pytest.mark.torch

WORDS, CLASSES, STEPS = 37, 5, 20
#: The names that most models give to their sizes, and to the probabilities of their dropouts.
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
WORDED = {"vocab_size": WORDS, "max_position_embeddings": 16}


def hf() -> Any:
    """The package, whose import takes 2 s of every process that only collects these tests."""
    reason = "transformers is not installed; scripts/test --with-torch adds it"
    return pytest.importorskip("transformers", reason=reason)


def text() -> dict[str, Any]:
    ids = torch.randint(3, WORDS, (2, 10))
    return {"input_ids": ids, "labels": ids}


def masked() -> dict[str, Any]:
    return text() | {"attention_mask": torch.tensor([[1] * 10, [1] * 7 + [0] * 3])}


def pair() -> dict[str, Any]:
    data = text()
    return data | {"labels": data["labels"][:, :6].contiguous()}


def classes() -> dict[str, Any]:
    return text() | {"labels": torch.randint(0, 2, (2,))}


def images(size: int, count: int = 2) -> Callable[[], dict[str, Any]]:
    def inputs() -> dict[str, Any]:
        return {"pixel_values": torch.randn(count, 3, size, size), "labels": torch.randint(0, CLASSES, (count,))}

    return inputs


def sound() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 8, 20), "labels": torch.randint(0, CLASSES, (2,))}


class Listener(nn.Module):
    """Whisper's encoder with a classifier."""

    def __init__(self) -> None:
        super().__init__()
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        self.encoder, self.head = WhisperEncoder(whisper()), nn.Linear(16, CLASSES)

    def forward(self, input_features: Any, labels: Any) -> Any:
        y = self.head(self.encoder(input_features).last_hidden_state.mean(1))
        return {"loss": nn.functional.cross_entropy(y, labels)}


def whisper() -> Any:
    return hf().WhisperConfig(
        d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=32, num_mel_bins=8, dropout=0,
        max_source_positions=10, vocab_size=WORDS, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip


def bart() -> Any:
    layers = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    sizes = {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_model": 16}
    return hf().BartForConditionalGeneration(
        hf().BartConfig(**WORDED, **layers, **sizes, dropout=0, attention_dropout=0, use_cache=False)
    )


def gpt2() -> Any:
    dropouts = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    sizes = {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return hf().GPT2LMHeadModel(hf().GPT2Config(vocab_size=WORDS, use_cache=False, **dropouts, **sizes, **tokens))


def t5() -> Any:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    return hf().T5ForConditionalGeneration(
        hf().T5Config(vocab_size=WORDS, dropout_rate=0, use_cache=False, decoder_start_token_id=0, **sizes)
    )


def decoder(kind: str) -> Any:
    config = getattr(hf(), f"{kind}Config")(num_key_value_heads=1, use_cache=False, **WORDED, **SIZES)
    return getattr(hf(), f"{kind}ForCausalLM")(config)


def encoder(kind: str) -> Any:
    return getattr(hf(), f"{kind}ForMaskedLM")(getattr(hf(), f"{kind}Config")(**WORDED, **NO_DROPOUT, **SIZES))


def distilbert() -> Any:
    dropouts = {"dropout": 0, "attention_dropout": 0, "seq_classif_dropout": 0}
    return hf().DistilBertForSequenceClassification(
        hf().DistilBertConfig(vocab_size=WORDS, dim=16, hidden_dim=32, n_layers=2, n_heads=2, **dropouts)
    )


def vision(kind: str, **sizes: Any) -> Any:
    config = getattr(hf(), f"{kind}Config")(num_labels=CLASSES, **sizes)
    return getattr(hf(), f"{kind}ForImageClassification")(config)


def mobilenet() -> Any:
    # With a small epsilon, eager PyTorch in float32 and in float64 differ by 1e-2 as well.
    return vision("MobileNetV2", depth_multiplier=0.1, image_size=64, classifier_dropout_prob=0, layer_norm_eps=0.1)


def efficientnet() -> Any:
    sizes = {"width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 128, "image_size": 32}
    return vision("EfficientNet", dropout_rate=0.0, drop_connect_rate=0.0, **sizes)


def swin() -> Any:
    sizes = {"embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
    return vision("Swin", image_size=16, patch_size=2, drop_path_rate=0, **NO_DROPOUT, **sizes)


#: name: (the model, its data, its optimiser if it does not run with all)
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]], str]] = {
    "BERT": (lambda: encoder("Bert"), masked, "AdamW"),
    "RoBERTa": (lambda: encoder("Roberta"), text, "SGD"),
    "DistilBERT": (distilbert, classes, "Adam"),
    "GPT-2": (gpt2, text, "Adam"),
    "Llama": (lambda: decoder("Llama"), text, "AdamW"),
    "Qwen2": (lambda: decoder("Qwen2"), text, "momentum"),
    "T5": (t5, pair, "SGD"),
    "BART": (bart, text, "momentum"),
    "ViT": (lambda: vision("ViT", image_size=16, patch_size=4, **NO_DROPOUT, **SIZES), images(16), "momentum"),
    "Whisper encoder": (Listener, sound, "AdamW"),
    "ResNet": (
        lambda: vision("ResNet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
        images(32, 4),
        "Adam",
    ),
    "MobileNetV2": (mobilenet, images(64, 8), "SGD"),
    "EfficientNet": (efficientnet, images(32, 4), "momentum"),
    "ConvNeXt": (
        lambda: vision("ConvNext", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
        images(16),
        "SGD",
    ),
    "Swin": (swin, images(16), "AdamW"),
}
OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, 1e-3, eps=1e-6),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-3, eps=1e-6),
}
SAMPLE = {(name, optimiser) for name, (_, _, optimiser) in MODELS.items()}


class Loss(nn.Module):
    """The loss that a model returns."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **data: Any) -> Any:
        return poptorch.identity_loss(self.model(**data)["loss"], "none")


@pytest.mark.parametrize(
    ("name", "optimiser"),
    [
        pytest.param(name, optimiser, marks=() if (name, optimiser) in SAMPLE else pytest.mark.full)
        for name in MODELS
        for optimiser in OPTIMISERS
        if name not in ("ResNet", "MobileNetV2") or not optimiser.startswith("Adam") or (name, optimiser) in SAMPLE
    ],
)
@pytest.mark.filterwarnings("ignore:.*loss_type")
def test_losses_and_weights_equal_eager_pytorch(name: str, optimiser: str) -> None:
    make, data, _ = MODELS[name]
    torch.manual_seed(0)
    module = Loss(make().train())
    other = copy.deepcopy(module)
    mine, theirs = (OPTIMISERS[optimiser](network.parameters()) for network in (module, other))
    model = poptorch.trainingModel(module, poptorch.Options(), mine)
    for _ in range(STEPS):
        batch = data()
        theirs.zero_grad()
        expected = other(**batch)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(model(**batch), expected.detach(), rtol=1e-5, atol=1e-5)
    for (id, a), b in zip(module.state_dict().items(), other.state_dict().values(), strict=True):
        if a.is_floating_point():
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, msg=lambda text, id=id: f"{id}: {text}")
