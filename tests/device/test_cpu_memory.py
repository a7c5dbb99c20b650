"""The planner of static memory: nothing alive together overlaps, and little is wasted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from opweave.memory import ALIGNMENT, Life, plan_memory


@st.composite
def lives(draw: st.DrawFn) -> list[Life]:
    found = []
    for i in range(draw(st.integers(0, 30))):
        first = draw(st.integers(0, 40))
        found.append(Life(i, draw(st.integers(0, 1000)), first, first + draw(st.integers(1, 12))))
    return found


@given(lives())
def test_values_alive_together_do_not_overlap(values: list[Life]) -> None:
    layout = plan_memory(values)
    assert layout.lower_bound <= layout.nbytes
    for i, a in enumerate(values):
        start = layout.offsets[a.value]
        assert start % ALIGNMENT == 0
        assert start + a.nbytes <= layout.nbytes
        for b in values[:i]:
            if a.first <= b.last and b.first <= a.last:
                other = layout.offsets[b.value]
                assert start + a.nbytes <= other or other + b.nbytes <= start or not a.nbytes or not b.nbytes


def test_a_chain_needs_two_buffers() -> None:
    layout = plan_memory([Life(i, 64, 2 * i, 2 * i + 3) for i in range(10)])
    assert layout.nbytes == layout.lower_bound == 128


def test_in_place_needs_one() -> None:
    layout = plan_memory([Life(i, 64, 2 * i, 2 * i + 3, inplace=(i - 1,)) for i in range(10)])
    assert layout.nbytes == 64


def test_no_writing_over_what_is_read_later() -> None:
    layout = plan_memory([Life(0, 64, 0, 9), Life(1, 64, 2, 5, inplace=(0,))])
    assert layout.offsets[0] != layout.offsets[1]


def test_a_view_keeps_its_source_alive() -> None:
    layout = plan_memory([Life(0, 64, 0, 3), Life(1, 0, 2, 9, alias=0), Life(2, 64, 4, 7), Life(3, 0, 1, 3, alias=77)])
    assert layout.offsets[0] != layout.offsets[2]
    assert 3 not in layout.offsets
