"""What companions on other nodes send arrives whole, however Slurm mixes the lines of several nodes."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from windlass.agent.node.companions import LOG, MessageJoiner, render_message

texts = st.lists(st.binary(max_size=4096).map(lambda data: data.replace(b"\n", b"")), max_size=4)


@given(texts, texts, st.randoms(use_true_random=False), st.integers(1, 3000))
def test_messages_of_two_nodes_are_put_together(
    one: list[bytes], two: list[bytes], chance: Random, size: int
) -> None:
    lines = {"n1": _lines("n1", one), "n2": _lines("n2", two)}
    assert all(len(line) <= 1024 for of in lines.values() for line in of)
    stream = b""
    while lines["n1"] or lines["n2"]:
        stream += lines[chance.choice([node for node in lines if lines[node]])].pop(0)
    joiner = MessageJoiner()
    messages = [
        message
        for at in range(0, len(stream), size)
        for message in joiner.feed(stream[at : at + size])
    ]
    for node, sent in (("n1", one), ("n2", two)):
        assert [text for kind, of, text in messages if of == node and kind == LOG] == sent


def _lines(node: str, sent: list[bytes]) -> list[bytes]:
    stream = b"".join(render_message(LOG, node, text) for text in sent)
    return [line + b"\n" for line in stream.split(b"\n")[:-1]]
