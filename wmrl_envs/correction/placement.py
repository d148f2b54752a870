"""Anchors inside groups: which members of a group are executed, once its predictions are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from wmrl_envs.correction.scores import check_number, check_scores
from wmrl_envs.errors import InvalidInput

Place = Literal["groups", "members", "favourites"]


def check_place(place: Any) -> Place:
    """`place`, if it is one.

    Raises:
        InvalidInput: it is not.
    """
    if place not in get_args(Place):
        raise InvalidInput(f"anchor place {place!r}: expected one of {', '.join(map(repr, get_args(Place)))}.")
    return place


@dataclass(frozen=True)
class Picks:
    """Members that are executed, each of shape (m, n).

    Attributes:
        executed: is executed.
        random: was picked at random, so it may enter the pool, eta2 and the audit (favourites are no random sample).
        propensity: probability with which the member was to be executed, as the picks were drawn; 0 for one that could not be.
    """

    executed: np.ndarray
    random: np.ndarray
    propensity: np.ndarray


def pick(predicted: Any, candidates: Any, picks: Any, place: Place, random_share: float, rng: np.random.Generator) -> Picks:
    """Choose members to execute: at random ("members"), or those that the predictions like best ("favourites").

    The predictions' error steers a policy where it is at the top of a group: an over-scored favourite is reinforced until it is
    executed. So the favourite is executed, and with probability `random_share` a random member in its place.

    Args:
        predicted: scores, shape (m, n).
        candidates: members that may be executed (a program could be read, its truth is not known yet), shape (m, n).
        picks: how many in each group, shape (m,) of whole numbers; fewer where there are fewer candidates.
        place: "members" or "favourites".
        random_share: of the picks of "favourites", in [0, 1].
        rng: its state moves on by a fixed amount a call, whatever is chosen.

    >>> found = pick([[0.2, 0.9, 0.5]], [[True, True, True]], [1], "favourites", 0.0, np.random.default_rng(0))
    >>> found.executed.tolist(), found.propensity.tolist()
    ([[False, True, False]], [[0.0, 1.0, 0.0]])
    """
    scores = np.atleast_2d(check_scores(predicted, "predicted", None))
    free = np.atleast_2d(np.asarray(candidates, dtype=bool))
    wanted = np.asarray(picks)
    check_number("random_share", random_share, 0.0, 1.0)
    if check_place(place) == "groups" or free.shape != scores.shape or wanted.shape != scores.shape[:1]:
        raise InvalidInput(
            f"pick(place={place!r}) with predicted {scores.shape}, candidates {free.shape}, picks {wanted.shape}: expected "
            "'members' or 'favourites', (m, n), (m, n) and (m,)."
        )
    share = 1.0 if place == "members" else random_share
    order, coins = rng.random(scores.shape), rng.random(scores.shape)
    executed, at_random, propensity = (np.zeros(scores.shape, dtype=kind) for kind in (bool, bool, float))
    for k in range(len(scores)):
        mine = np.flatnonzero(free[k])
        count = min(int(wanted[k]), len(mine))
        n_random = int((coins[k, :count] < share).sum())
        chosen = mine[np.argsort(order[k, mine], kind="stable")][:n_random]
        rest = np.setdiff1d(mine, chosen)
        liked = rest[np.lexsort((order[k, rest], -scores[k, rest]))][: count - n_random]
        executed[k, chosen] = executed[k, liked] = at_random[k, chosen] = True
        if count:
            propensity[k, mine] = _propensities(scores[k, mine], count, share)
    return Picks(executed, at_random, propensity)


def _propensities(scores: np.ndarray, count: int, share: float) -> np.ndarray:
    """P(executed) of each candidate: r of `count` picks are random, the others the best of those that are left."""
    above = tuple(int((scores > s).sum()) for s in scores)
    equal = tuple(int((scores == s).sum()) for s in scores)
    return np.array(_by_rank(above, equal, count, share))


@lru_cache(maxsize=4096)
def _by_rank(above: tuple[int, ...], equal: tuple[int, ...], count: int, share: float) -> tuple[float, ...]:
    """`above`: how many candidates score higher; `equal`: how many score the same, itself among them."""
    from scipy.stats import binom, hypergeom

    n, out = len(above), np.zeros(len(above))
    for r in range(count + 1):
        as_favourite = np.zeros(n)
        if count > r:
            for i in range(n):  # ties are broken at random: the mean over the places it may take among its equals
                places = above[i] + np.arange(equal[i])
                # It is among the best count - r of the rest if enough of those before it were taken at random.
                needed = places - (count - r) + 1
                as_favourite[i] = np.mean(hypergeom.sf(needed - 1, max(n - 1, 1), places, r))
        out += binom.pmf(r, count, share) * (r / n + (1 - r / n) * as_favourite)
    return tuple(np.clip(out, 0.0, 1.0).tolist())
