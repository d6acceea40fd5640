"""Networks as blocks: published parameter counts, and the sizes of the same networks as graphs."""

from __future__ import annotations

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.models import CATALOGUE, ModelSize, named
from ipu_emu.predict.networks import NETWORKS, network

#: The counts of torchvision, timm, Hugging Face, and of the papers.
PUBLISHED = {
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext101": 44_177_704,
    "resnext101-32x8d": 88_791_336,
    "efficientnet-b0": 5_288_548,
    "efficientnet-b1": 7_794_184,
    "efficientnet-b2": 9_109_994,
    "efficientnet-b3": 12_233_232,
    "efficientnet-b4": 19_341_616,
    "efficientnet-b5": 30_389_784,
    "efficientnet-b6": 43_040_704,
    "efficientnet-b7": 66_347_960,
    "unet": 31_037_698,
    "bert-base": 109_482_240,
    "bert-base-squad": 108_893_186,
    "bert-large": 335_141_888,
    "bert-large-squad": 334_094_338,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "llama-1b": 1_100_048_384,
    "llama-7b": 6_738_415_616,
    "vit-s16": 22_050_664,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "dino-vit": 21_665_664,
    "swin-tiny": 28_288_354,
    "swin-base": 87_768_224,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameters(name: str) -> None:
    assert network(name).parameters == PUBLISHED[name]


def test_rnnt_is_as_large_as_the_reference_of_mlperf() -> None:
    assert network("rnnt").parameters == pytest.approx(49.0e6, rel=2e-3)


@pytest.mark.parametrize("name", CATALOGUE)
def test_as_the_graph(name: str) -> None:
    """Parameters, heads and moving averages are equal; operations nearly, because blocks count only products."""
    network_, size = network(name), ModelSize.of(named(name))
    assert network_.parameters == size.parameters
    assert network_.trained - network_.parameters == size.heads
    assert network_.statistics == size.statistics
    if not name.startswith("bert"):  # graphs of BERT make logits for every position
        assert network_.flops == pytest.approx(size.flops, rel=0.04)


def test_bert_makes_logits_for_masked_positions_only() -> None:
    few, all_ = network("bert-base", masked=20), network("bert-base", masked=128)
    assert all_.flops == pytest.approx(ModelSize.of(named("bert-base")).flops, rel=0.02)
    assert all_.flops - few.flops == 2 * 108 * (768 * 30522 + 768 * 768)


def test_options_change_a_network() -> None:
    assert network("bert-base", vocabulary=30_912).parameters == 109_781_760
    assert network("bert-large", length=512).flops > 4 * network("bert-large").flops
    assert network("resnet50", size=112).flops == pytest.approx(network("resnet50").flops / 4, rel=0.1)


def test_groups_of_few_channels_leave_the_matrix_unit_idle() -> None:
    assert sum(block.idle for block in network("resnet50").blocks) == 0
    assert sum(block.idle for block in network("efficientnet-b0").blocks) > 0


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("resnet51", {}, "did you mean resnet50"),
        ("resnet50", {"length": 128}, "has no length to set; it takes --size"),
        ("resnet8", {"length": 128}, "resnet8 has no length to set; leave it out"),
        ("vit-b16", {"size": 15}, "images of 15 x 15 is not possible; use a multiple of 16, such as 16"),
        ("swin-tiny", {"size": 200}, "use a multiple of 32, such as 192"),
        ("unet", {"size": 500}, "use a multiple of 16, such as 496"),
        ("bert-base", {"length": 1024}, "has 512 positions"),
        ("bert-base", {"length": 128, "masked": 129}, "at most 128"),
        ("vit-b16", {"size": 0}, "at least 1"),
    ],
)
def test_mistakes(name: str, options: dict[str, int], said: str) -> None:
    with pytest.raises(EmulatorError, match=said):
        network(name, **options)


def test_all_networks_have_work_and_values() -> None:
    for name in NETWORKS:
        built = network(name)
        assert built.name == name
        assert 0 < built.flops <= built.model_flops <= 3 * built.flops
        assert built.activations > 0 < built.input_values
