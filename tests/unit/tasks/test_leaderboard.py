"""Positions on made-up boards: ties, NaN, both directions, boards without information."""

import math

import numpy as np
import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks import Leaderboard


def brute_rank(entries, score, higher):
    ordered = sorted(entries, reverse=higher)
    for i, entry in enumerate(ordered, start=1):
        if (score >= entry) if higher else (score <= entry):
            return i
    return len(ordered) + 1


@pytest.mark.parametrize("higher", [True, False])
def test_rank_is_the_first_entry_equalled_or_beaten(higher):
    rng = np.random.default_rng(0)
    entries = rng.integers(-5, 15, 60) / 10
    board = Leaderboard(private=entries, higher_is_better=higher)
    for score in np.arange(-1, 2, 0.05).round(2):
        place = board.position(score).private
        rank = brute_rank(entries, score, higher)
        assert (place.rank, place.total) == (rank, 60)
        assert place.score == pytest.approx((60 - rank + 1) / 60)


def test_best_is_one_and_worse_than_all_is_zero():
    board = Leaderboard(private=[3.0, 1.0, 2.0], higher_is_better=False)
    assert board.position(1.0).score == 1.0
    assert board.position(0.5).score == 1.0
    assert board.position(3.5).private.rank == 4
    assert board.position(3.5).score == 0.0


@pytest.mark.parametrize("higher", [True, False])
def test_nan_and_infinity(higher):
    board = Leaderboard(private=[1.0, 2.0], public=[1.0, 3.0, 4.0], higher_is_better=higher)
    nan = board.position(float("nan"))
    assert (nan.score, nan.private.rank, nan.public.rank) == (0.0, 3, 4)
    best = math.inf if higher else -math.inf
    assert board.position(best).score == 1.0
    assert board.position(-best).score == 0.0


def test_the_score_is_the_mean_of_the_boards():
    board = Leaderboard(private=[0.9, 0.8, 0.7, 0.6], public=[0.9, 0.5], higher_is_better=True)
    position = board.position(0.8)
    assert (position.private.score, position.public.score, position.score) == (0.75, 0.5, 0.625)


def test_a_board_without_information_is_left_out_with_a_warning_unless_compat():
    with pytest.warns(UserWarning, match="public leaderboard 'x' tells nothing, all its 50 entries are equal"):
        board = Leaderboard(private=[0.9, 0.8], public=[0.0] * 50, higher_is_better=True, name="x")
    assert board.left_out == ("public",)
    assert board.position(0.8).public is None
    assert board.position(0.8).score == 0.5
    with pytest.warns(UserWarning, match="all its 1 entries are equal"):
        assert Leaderboard(private=[0.9, 0.8, 0.7], public=[0.5], higher_is_better=True).position(0.81).public is None
    compat = Leaderboard(private=[0.9, 0.8], public=[0.0] * 50, higher_is_better=True, compat="mledojo")
    assert compat.position(0.8).score == 0.75


def test_the_column_named_score_counts_in_any_case_and_place(tmp_path):
    (tmp_path / "a.csv").write_text("rank,score\n1,0.9\n2,0.8\n")
    export = "\ufeffRank,TeamId,TeamName,LastSubmissionDate,Score,SubmissionCount,TeamMemberUserNames\r\n"
    export += '1,4000000,"team, one",2026-01-01 00:00:00,0.9,3,"a,b"\r\n2,4000037,two,2026-01-01 00:00:00,0.7,1,c\r\n'
    (tmp_path / "b.csv").write_bytes(export.encode())
    board = Leaderboard.from_csv(private=tmp_path / "a.csv", public=str(tmp_path / "b.csv"), higher_is_better=True)
    assert board.sizes == {"private": 2, "public": 2}
    assert (board.position(0.8).private.rank, board.position(0.8).public.rank) == (2, 2)


@pytest.mark.parametrize("header", ["1,1.0", "Rank,TeamId", "team,result", "score,Score"])
def test_no_column_is_taken_for_the_score_by_its_place(tmp_path, header):
    path = tmp_path / "board.csv"
    path.write_text(f"{header}\n2,0.9\n3,0.8\n")
    with pytest.raises(
        InvalidInput, match=r"column named score \(its first line is .*expected a CSV with the columns rank,score"
    ):
        Leaderboard.from_csv(private=path, higher_is_better=True)


@pytest.mark.parametrize(
    ("total", "places"),
    [
        (5, (1, 1, 2)),
        (99, (9, 19, 39)),
        (100, (10, 20, 40)),
        (249, (10, 49, 99)),
        (250, (10, 50, 100)),
        (999, (11, 50, 100)),
        (3000, (16, 150, 300)),
    ],
)
def test_medals_go_by_the_number_of_teams(total, places):
    board = Leaderboard(private=np.arange(total), higher_is_better=False)
    for name, last in dict(zip(("gold", "silver", "bronze"), places, strict=True)).items():
        assert board.medal_scores()[name] == last - 1
    assert [board.position(r - 1).private.medal for r in (1, places[2], places[2] + 1)] == ["gold", "bronze", None]
    assert board.position(total + 1).private.medal is None


@pytest.mark.parametrize("text", ["", "rank,score\n", "rank,score\n1,abc\n", "rank,score\n1,\n", "rank\n1\n"])
def test_a_bad_board_file_is_named(tmp_path, text):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput):
        Leaderboard.from_csv(private=path, higher_is_better=True)


def test_a_missing_board_file_or_none_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="no such leaderboard"):
        Leaderboard.from_csv(private=tmp_path / "none.csv", higher_is_better=True)
    with pytest.raises(InvalidInput, match="at least one"):
        Leaderboard(higher_is_better=True)


def test_ranks_on_ten_thousand_entries_are_those_of_counting():
    entries = np.linspace(0, 1, 10_000)
    board = Leaderboard(private=entries, higher_is_better=True)
    for score in np.linspace(0, 1, 200):
        assert board.position(score).private.rank == int((entries > score).sum()) + 1


def test_quantile_inverts_position():
    board = Leaderboard(private=np.linspace(0, 1, 101), higher_is_better=True)
    for wanted in (0.1, 0.5, 0.9, 1.0):
        assert board.position(board.quantile(wanted)).score >= wanted - 1e-9


def test_blank_entries_are_left_out_with_a_warning_and_words_are_refused(tmp_path):
    file = tmp_path / "board.csv"
    file.write_text("rank,score\n1,0.9\n2,\n3,0.5\n")
    with pytest.warns(UserWarning, match="1 of 3 entries of the private leaderboard .* have no score"):
        board = Leaderboard.from_csv(private=file, higher_is_better=True)
    place = board.position(0.5).private
    assert (place.rank, place.total, place.score) == (2, 2, 0.5)
    file.write_text("rank,score\n1,0.9\n2,none of it\n")
    with pytest.raises(InvalidInput, match="'none of it' in data row 2 is no number"):
        Leaderboard.from_csv(private=file, higher_is_better=True)
    with pytest.raises(InvalidInput, match="has no number"):
        Leaderboard(private=[math.nan], higher_is_better=True)


@pytest.mark.parametrize("score", [None, "first"])
def test_only_a_number_is_ranked(score):
    with pytest.raises(InvalidInput, match=f"score={score!r}"):
        Leaderboard(private=[1.0, 2.0], higher_is_better=True).position(score)
