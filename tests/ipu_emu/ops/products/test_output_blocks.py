"""Output blocks: tiles of every width cover a line, and repeat few of its numbers."""

from __future__ import annotations

import pytest

from ipu_emu.ops.products.output_blocks import output_blocks


@pytest.mark.parametrize("most", [1, 2, 4])
def test_tiles_cover_a_line(most: int) -> None:
    for line in range(4, 200):
        written = [0] * line
        for part in output_blocks(1, line, 0, 0, 0, most):
            for place in part.places // 4:
                for number in range(place, place + part.lanes * part.vectors):
                    written[number] += 1
        assert min(written) == 1, f"a line of {line}: {written}"
        repeated = sum(written) - line
        assert repeated <= 8 or repeated <= line // 4, f"a line of {line} is computed as one of {sum(written)}"


def test_rows_are_apart_in_the_image_and_in_the_output() -> None:
    (part,) = output_blocks(2, 32, 1000, 500, 8)
    assert [int(at) % 1000 for at in part.origins[:1]] == [8]
    assert part.origins[part.per_row] - part.origins[0] == 1000
    assert part.at(2)[part.per_row] - part.at(2)[0] == 500
