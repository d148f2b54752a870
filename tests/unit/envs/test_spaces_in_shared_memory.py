import copy
import multiprocessing

from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_envs.spaces import UnicodeText


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_any_text_survives_shared_memory(texts):
    space = UnicodeText(12)
    memory = create_shared_memory(space, n=len(texts), ctx=multiprocessing)
    view = read_from_shared_memory(space, memory, n=len(texts))
    assert list(view) == [""] * len(texts)
    for index, text in enumerate(texts):
        write_to_shared_memory(space, index, text, memory)
    assert tuple(view) == tuple(texts)  # the view follows
    kept = copy.deepcopy(view)
    write_to_shared_memory(space, 0, "other", memory)
    assert kept == tuple(texts)
    assert view[0] == "other"
    assert view[1:] == tuple(texts[1:])


def test_half_a_surrogate_pair_survives():
    space = UnicodeText(3)
    memory = create_shared_memory(space, n=1, ctx=multiprocessing)
    write_to_shared_memory(space, 0, "a\ud800", memory)
    assert read_from_shared_memory(space, memory, n=1)[0] == "a\ud800"
