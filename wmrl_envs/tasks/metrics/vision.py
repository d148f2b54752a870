"""Metrics on masks, boxes and points written as text.

Parsers raise ValueError with the offending piece; metrics take what they return, one element a row, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def parse_rle(text: str, height: int, width: int) -> np.ndarray:
    """Run-length code `start length start length ...`, starts from 1, to a flat bool mask of height * width cells.

    The order of the cells (by column or by row) is the task's; comparing two masks does not need it.

    >>> parse_rle("1 2 4 1", 2, 2).astype(int).tolist()
    [1, 1, 0, 1]
    """
    return mask_of(parse_runs(text, height * width), height * width)


def parse_runs(text: str, size: int) -> np.ndarray:
    """Run-length code to an array (runs, 2) of starts and lengths: all that has to be kept of many masks."""
    numbers = _numbers(text, int)
    if len(numbers) % 2:
        raise ValueError(f"run-length code with an odd number of values ({len(numbers)})")
    for start, length in zip(numbers[::2], numbers[1::2], strict=True):
        if start < 1 or length < 0 or start - 1 + length > size:
            raise ValueError(f"run '{start} {length}' outside 1..{size}")
    return np.array(numbers, np.int64).reshape(-1, 2)


def mask_of(runs: np.ndarray, size: int) -> np.ndarray:
    """Runs to a flat bool mask of `size` cells. Costs size + runs, however far they overlap."""
    steps = np.zeros(size + 1, np.int64)
    np.add.at(steps, runs[:, 0] - 1, 1)
    np.add.at(steps, runs[:, 0] - 1 + runs[:, 1], -1)
    return np.cumsum(steps[:-1]) > 0


def _numbers(text: str, kind: type) -> list:
    try:
        return [kind(token) for token in text.split()]
    except ValueError:
        raise ValueError(f"{text.strip()[:40]!r} holds something that is no {'whole ' if kind is int else ''}number") from None


def rle_iou_precision(y: Iterable[np.ndarray], p: Iterable[np.ndarray], at_threshold: bool = False) -> float:
    """Mean over images of the share of thresholds .50, .55, ..., .95 that the IoU of the two masks exceeds.

    Two empty masks have IoU 1. `at_threshold`: reaching a threshold (in floating point) counts, as in MLE-Dojo.
    """
    total, images = 0.0, 0
    for truth, guess in zip(y, p, strict=True):
        images += 1
        both, either = int((truth & guess).sum()), int((truth | guess).sum())
        if at_threshold:
            iou = both / either if either else 1.0
            total += float((iou >= np.arange(0.5, 1.0, 0.05)).mean())
        elif not either:
            total += 1.0
        else:  # in whole numbers, so that an IoU of exactly .60 does not exceed .60
            total += sum(20 * both > t * either for t in range(10, 20)) / 10
    return total / images


def dice_hausdorff(y: Iterable[np.ndarray], p: Iterable[np.ndarray], size: int = 512) -> float:
    """0.4 mean Dice + 0.6 (1 - mean Hausdorff distance), on size x size masks.

    The distance is divided by the diagonal. Two empty masks have Dice 0 and distance 0, one empty mask distance 1.
    """
    dice, distance = [], []
    for truth, guess in zip(y, p, strict=True):
        n = int(truth.sum()) + int(guess.sum())
        dice.append(2 * int((truth & guess).sum()) / n if n else 0.0)
        distance.append(_hausdorff(truth.reshape(size, size), guess.reshape(size, size)))
    return float(0.4 * np.mean(dice) + 0.6 * (1 - np.mean(distance)))


def _hausdorff(a: np.ndarray, b: np.ndarray) -> float:
    """Symmetric Hausdorff distance of two masks over the diagonal of the image."""
    from scipy.ndimage import distance_transform_edt

    if not a.any() and not b.any():
        return 0.0
    if not a.any() or not b.any():
        return 1.0
    if (a == b).all():
        return 0.0
    rows, columns = np.flatnonzero((a | b).any(1)), np.flatnonzero((a | b).any(0))
    window = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))  # nothing lies outside it
    crop_a, crop_b = a[window], b[window]
    worst = max(distance_transform_edt(~crop_b)[crop_a].max(), distance_transform_edt(~crop_a)[crop_b].max())
    return float(worst / (a.shape[0] * np.sqrt(2)))


def parse_boxes(text: str) -> np.ndarray:
    """`confidence x y width height ...` to an array of shape (boxes, 5)."""
    numbers = _numbers(text, float)
    if len(numbers) % 5:
        raise ValueError(f"{len(numbers)} numbers, expected five (confidence x y width height) for each box")
    boxes = np.array(numbers, float).reshape(-1, 5)
    if not np.isfinite(boxes).all():
        raise ValueError("a box with a value that is not finite")
    if (boxes[:, 3:] < 0).any():
        raise ValueError("a box with negative width or height")
    return boxes


def box_precision(y: Sequence[np.ndarray], p: Sequence[np.ndarray], at_threshold: bool = False) -> float:
    """Mean over images and IoU thresholds .50, .55, ..., .75 of TP / (TP + FP + FN).

    Predicted boxes, surest first, each take the best free true box they overlap by more than the threshold. An image without
    true boxes scores 0. `at_threshold`: reaching the threshold counts.
    """
    scores = []
    for truth, guess in zip(y, p, strict=True):
        if not len(truth):
            scores.append(0.0)
            continue
        iou = _overlaps(guess[np.argsort(-guess[:, 0], kind="stable")], truth)
        precisions = []
        for twentieths in range(10, 16):
            # The slack keeps rounding from lifting an overlap of exactly .60 above .60.
            least = twentieths / 20 + (-1e-9 if at_threshold else 1e-9)
            hits = _matches(iou, least)
            precisions.append(hits / (len(guess) + len(truth) - hits))
        scores.append(float(np.mean(precisions)))
    return float(np.mean(scores))


_CHUNK = 65_536  # predicted boxes that are compared at a time


def _overlaps(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """IoU of predicted with true boxes, shape (predicted, true), without the predictions that overlap none by half."""
    parts = [_iou(guess[i : i + _CHUNK], truth) for i in range(0, max(len(guess), 1), _CHUNK)]
    return np.concatenate([iou[(iou >= 0.5 - 1e-9).any(axis=1)] for iou in parts])


def _iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    low = np.maximum(a[:, None, 1:3], b[None, :, 1:3])
    high = np.minimum(a[:, None, 1:3] + a[:, None, 3:], b[None, :, 1:3] + b[None, :, 3:])
    both = np.clip(high - low, 0, None).prod(axis=2)
    either = a[:, 3:].prod(axis=1)[:, None] + b[:, 3:].prod(axis=1)[None, :] - both
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)


def _matches(iou: np.ndarray, least: float) -> int:
    """How many rows, in order, find a free column with at least `least`; each takes the one with the most."""
    free = np.ones(iou.shape[1], bool)
    hits = 0
    for row in iou[(iou >= least).any(axis=1)]:
        candidates = np.where(free, row, -1.0)
        best = int(candidates.argmax())
        if candidates[best] >= least:
            free[best] = False
            hits += 1
            if hits == len(free):
                break
    return hits


def parse_points(text: str, numbers: int = 2, at_most: int = 1200) -> tuple[list[str], np.ndarray]:
    """`label x y ...` (or `label x y width height` with four numbers) to labels and an array (points, numbers)."""
    tokens = text.split()
    width = numbers + 1
    if len(tokens) % width:
        raise ValueError(f"{len(tokens)} items, expected groups of {width} ('label {'X Y' if numbers == 2 else 'X Y W H'}')")
    if len(tokens) // width > at_most:
        raise ValueError(f"{len(tokens) // width} predictions, at most {at_most} are allowed")
    values = [t for i, t in enumerate(tokens) if i % width]
    points = np.array(_numbers(" ".join(values), float), float).reshape(-1, numbers)
    if not np.isfinite(points).all():
        raise ValueError("a coordinate that is not finite")
    return tokens[::width], points


Points = tuple[list[str], np.ndarray]


def point_f1(y: Sequence[Points], p: Sequence[Points]) -> float:
    """F1 pooled over images: a point is a hit if a free true box of its label holds it (right and lower edge excluded)."""
    hits = n_truth = n_guess = 0
    for (labels, boxes), (guesses, points) in zip(y, p, strict=True):
        n_truth += len(labels)
        n_guess += len(guesses)
        if not labels or not guesses:
            continue
        same = np.array(guesses, object)[:, None] == np.array(labels, object)[None, :]
        inside = (points[:, None] >= boxes[None, :, :2]) & (points[:, None] < boxes[None, :, :2] + boxes[None, :, 2:])
        hits += _matches((same & inside.all(axis=2)).astype(float), 1.0)
    return 2 * hits / (n_guess + n_truth) if hits else 0.0
