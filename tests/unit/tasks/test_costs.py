"""What grading costs grows with the file and no faster, whether it is accepted or refused: ratios of two sizes, no seconds."""

import json
import random
import time
import tracemalloc
from functools import partial

import pytest

from wmrl_envs.tasks import InvalidSubmission, task_spec
from wmrl_envs.tasks.grading import text_columns
from wmrl_envs.tasks.validation import read_table

SMALL, LARGE = 10_000, 100_000
NOISE_S = 0.01


def labelled(slug, labels):
    spec = task_spec(slug)
    id_column, target = (spec.facts.id_columns or ("id",))[0], spec.facts.target_columns[0]
    return "\n".join([f"{id_column},{target}", *(f"{i},{label}" for i, label in enumerate(labels))]).encode()


def probabilities_for_classes(n):
    rng = random.Random(0)
    slug = "forest-cover-type-kernels-only"
    return slug, labelled(slug, (i % 2 for i in range(n))), labelled(slug, (rng.random() for _ in range(n)))


def a_word_of_its_own_in_each_row(n):
    slug = "forest-cover-type-kernels-only"
    return slug, labelled(slug, (i % 2 for i in range(n))), labelled(slug, (f"w{i}" for i in range(n)))


def a_class_of_its_own_in_each_row(n):
    slug = "birdstrike-phase"
    return slug, labelled(slug, ("ab"[i % 2] for i in range(n))), labelled(slug, (f"w{i}" for i in range(n)))


def one_long_label(n):
    slug = "birdstrike-phase"
    return slug, labelled(slug, "abcd" * 500), labelled(slug, ["x" * n, *"bcd", *"abcd" * 499])


def many_classes_for_mcc(n):
    slug = "artwork-medium"
    return slug, labelled(slug, ("ep"[i % 2] for i in range(n))), labelled(slug, (f"w{i}" for i in range(n)))


def many_columns(n):
    return "titanic", labelled("titanic", "01"), (",".join(f"c{i}" for i in range(n)) + "\n" + ",".join("1" * n)).encode()


def columns_just_allowed(n):
    return many_columns(n // 11)


def a_row_of_many_cells(n):
    return "titanic", labelled("titanic", "01"), b"PassengerId,Survived\n0," + b"1," * n


def json_records(n):
    records = json.dumps([{"id": str(i), "price": f"{i}.5"} for i in range(n)])
    return "titanic", labelled("titanic", "01"), records.encode()


def a_column_many_times(n):
    return "titanic", labelled("titanic", "01"), b"PassengerId" + b",Survived" * (n // 11)


def unknown_ids(n):
    slug = "playground-series-s3e9"
    return slug, labelled(slug, range(n)), labelled(slug, range(n)).replace(b"\n", b"\nx")


def missing_numbers(n):
    slug = "playground-series-s3e9"
    return slug, labelled(slug, range(n)), labelled(slug, ("" for _ in range(n)))


def words_for_numbers(n):
    slug = "playground-series-s3e9"
    return slug, labelled(slug, range(n)), labelled(slug, (f"w{i}" for i in range(n)))


def runs_over_each_other(n):
    slug = "tgs-salt-identification-challenge"
    return slug, labelled(slug, ["1 10", "5 5"]), labelled(slug, [" ".join(["1 10000"] * n), "1 1"])


def many_boxes(n):
    slug = "global-wheat-detection"
    box = "1.0 0 0 10 10"
    return slug, labelled(slug, [box, box]), labelled(slug, [" ".join([box] * (n // 5)), box])


def malformed_boxes(n):
    slug = "global-wheat-detection"
    return slug, labelled(slug, ["1.0 0 0 10 10"] * (n // 10)), labelled(slug, ["1 2 3"] * (n // 10))


KINDS = [value for value in list(globals().values()) if callable(value) and getattr(value, "__module__", "") == __name__]
KINDS.remove(labelled)


def graded(slug, truth, data):
    """What becomes of a file: its score, or None for a refusal."""
    spec = task_spec(slug)
    answers = read_table(truth, text_columns(spec))
    try:
        return spec.metric(answers, read_table(data, text_columns(spec), partial(spec.check_header, answers)))
    except InvalidSubmission:
        return None


def seconds(case):
    """CPU seconds, the least of two."""
    times = []
    for _ in range(2):
        began = time.process_time()
        graded(*case)
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_ten_times_the_file_costs_about_ten_times_the_time(kind):
    graded(*kind(10))
    assert seconds(kind(LARGE)) <= 40 * max(seconds(kind(SMALL)), NOISE_S)  # the square would be a hundred


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_memory_is_some_times_the_file_and_its_answers(kind):
    graded(*kind(10))
    case = kind(LARGE)
    tracemalloc.start()
    try:
        graded(*case)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 2_000_000 + 60 * (len(case[1]) + len(case[2]))
