"""`Trie`: the completions a policy may write, as a tree over token ids.

A policy that decodes under it samples from its own distribution restricted to these completions: at every token the logits are
masked to the continuations that are left, and log-probabilities are those of the masked distribution. With the programs of an
execution bank, every sample then has a really executed outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Node = dict[int, "Node"]  # token id -> what may follow


class Trie:
    """The completions `sequences`; none may be empty, or the beginning of another (they end with a stop token).

    >>> trie = Trie([[5, 6, 7], [5, 8, 9, 7]])
    >>> trie.choices([5, 8, 9, 7])
    [(5,), (6, 8), (9,), (7,)]
    """

    def __init__(self, sequences: Iterable[Sequence[int]]):
        self.root: Node = {}
        for sequence in sequences:
            node = self.root
            for token in sequence:
                node = node.setdefault(int(token), {})
        if not self.root:
            raise ValueError("a trie of no sequences: expected at least one, of at least one token")

    def choices(self, sequence: Sequence[int]) -> list[tuple[int, ...]]:
        """What could have been chosen at each token of one of the sequences (or of its beginning)."""
        node, found = self.root, []
        for token in sequence:
            found.append(tuple(node))
            node = node[token]
        return found


def tail(node: Node) -> list[int] | None:
    """The tokens that must follow if nothing is left to choose, else None."""
    forced = []
    while node:
        if len(node) > 1:
            return None
        ((token, node),) = node.items()
        forced.append(token)
    return forced
