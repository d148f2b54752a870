"""Metrics on text answers: rankings, words, spans, sets and orders.

`y` and `p` are parsed answers and predictions, one element a row, in the same order.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort_right
from collections.abc import Iterable, Sequence

import numpy as np

Spans = tuple[tuple[int, int], ...]


def map_at_k(y: Sequence[Sequence[str]], p: Sequence[Sequence[str]], k: int) -> float:
    """Mean average precision at k: guesses best first; with one true label a row scores 1/rank of the first hit.

    A label guessed again counts as no hit, though it takes a place.

    >>> map_at_k([["a"], ["b"]], [["a", "x"], ["x", "b"]], k=3)
    0.75
    """
    total = 0.0
    for truth, guesses in zip(y, p, strict=True):
        true, hits, score, seen = set(truth), 0, 0.0, set()
        for place, guess in enumerate(guesses[:k], start=1):
            if guess in true and guess not in seen:
                hits += 1
                score += hits / place
            seen.add(guess)
        total += score / min(len(true), k) if true else 0.0
    return total / len(y)


def word_jaccard(y: Iterable[str], p: Iterable[str]) -> float:
    """Mean over the rows of |common words| / |all words|, lower-cased; 1 if both are empty."""
    total, rows = 0.0, 0
    for rows, (truth, guess) in enumerate(zip(y, p, strict=True), start=1):  # noqa: B007
        a, b = set(truth.lower().split()), set(guess.lower().split())
        total += len(a & b) / len(a | b) if a | b else 1.0
    return total / rows


_SPAN = re.compile(r"\s*([0-9]{1,18})\s+([0-9]{1,18})\s*")


def parse_spans(text: str) -> Spans:
    """Character spans, end exclusive, in either spelling: `1 5;7 9` or `['1 5;7 9', '12 15']`.

    Raises:
        ValueError: not a span, or a reversed one.

    >>> parse_spans("['1 5;7 9']")
    ((1, 5), (7, 9))
    """
    body = re.sub(r"[\[\]'\"]", "", text).replace(",", ";")
    spans = []
    for part in body.split(";"):
        if not part.strip():
            continue
        match = _SPAN.fullmatch(part)
        if match is None:
            raise ValueError(f"{part.strip()[:40]!r} is not a span 'start end'")
        start, end = int(match[1]), int(match[2])
        if end < start:
            raise ValueError(f"span {part.strip()!r} ends before it starts")
        spans.append((start, end))
    return tuple(spans)


def span_f1(y: Sequence[Spans], p: Sequence[Spans]) -> float:
    """F1 over characters, pooled over all rows; a character covered twice counts once."""
    both = in_truth = in_guess = 0
    for truth, guess in zip(y, p, strict=True):
        a, b = _merge(truth), _merge(guess)
        in_truth += sum(end - start for start, end in a)
        in_guess += sum(end - start for start, end in b)
        both += _common(a, b)
    return 2 * both / (in_truth + in_guess) if in_truth + in_guess else 1.0


def _common(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> int:
    """Characters in both of two lists of merged spans."""
    total = i = j = 0
    while i < len(a) and j < len(b):
        total += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total


def _merge(spans: Spans) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def set_f1(y: Sequence[Sequence[str]], p: Sequence[Sequence[str]]) -> float:
    """Mean over the rows of the F1 between two sets."""
    scores = [2 * len(set(a) & set(b)) / (len(set(a)) + len(set(b))) if a or b else 1.0 for a, b in zip(y, p, strict=True)]
    return float(np.mean(scores))


def kendall_tau(y: Sequence[Sequence[str]], p: Sequence[Sequence[str]]) -> float:
    """1 - 4 (inversions) / sum of n (n - 1), over all orders pooled; 1 for the true order, -1 for its reverse.

    >>> kendall_tau([["a", "b", "c"]], [["c", "b", "a"]])
    -1.0
    """
    inversions = pairs = 0
    for truth, guess in zip(y, p, strict=True):
        place = {cell: i for i, cell in enumerate(truth)}
        inversions += _inversions([place[cell] for cell in guess])
        pairs += len(truth) * (len(truth) - 1)
    return 1 - 4 * inversions / pairs if pairs else 1.0


def _inversions(ranks: Sequence[int]) -> int:
    before: list[int] = []
    count = 0
    for i, rank in enumerate(ranks):
        count += i - bisect_right(before, rank)
        insort_right(before, rank)
    return count
