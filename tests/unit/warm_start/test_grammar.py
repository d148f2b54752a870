import ast
from collections import Counter
from dataclasses import replace

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks.scaffold import NAMES
from wmrl_train.agents.brief import Brief
from wmrl_train.warm_start.faults import FAULTS
from wmrl_train.warm_start.grammar import write_program


def programs(briefs, n, **options):
    return [write_program(brief, seed, **options) for brief in briefs for seed in range(n)]


def test_equal_arguments_give_equal_programs_and_seeds_give_variety(briefs):
    assert programs(briefs, 20) == programs(briefs, 20)
    codes = [p.code for p in programs(briefs, 60, broken=0.0)]
    assert len(set(codes)) > 0.8 * len(codes)


def test_programs_without_a_fault_parse_and_end_with_save(briefs):
    for program in programs(briefs, 60, broken=0.0):
        ast.parse(program.code)
        assert program.fault is None
        assert program.code.splitlines()[-1].startswith("save(")


def test_programs_without_a_fault_use_only_what_they_import_or_the_prelude_gives(briefs):
    from pyflakes.checker import Checker

    for program in programs(briefs, 60, broken=0.0):
        messages = Checker(ast.parse(program.code), builtins=set(NAMES)).messages
        assert not messages, (program.code, [str(m) for m in messages])


def test_every_kind_of_fault_occurs_at_about_the_asked_rate(briefs):
    found = Counter(p.fault for p in programs(briefs, 300, broken=0.3))
    assert set(found) == {None, *FAULTS}
    assert 0.25 < 1 - found[None] / found.total() < 0.35


def test_a_fault_changes_the_program(briefs):
    """Except where it cannot apply: then the program is one that could have been written without it."""
    broken = [
        p for p in programs(briefs, 200, broken=1.0) if p.fault in ("import", "module", "file", "nosave", "method", "param")
    ]
    assert broken
    marks = {"file": "read_csv(os.environ", "nosave": "\np = ", "method": "m."}
    for program in broken:
        if mark := marks.get(program.fault):
            assert mark in program.code, program


def test_anonymous_programs_name_no_column(briefs):
    for brief in briefs:
        names = {f"'{c}'" for kind in ("num", "cat", "text", "date") for c in getattr(brief, kind)}
        for seed in range(100):
            code = write_program(brief, seed, broken=0.3, by_name=False).code
            assert not any(name in code for name in names), code


def test_boosting_on_pixels_and_kernel_machines_on_many_rows_are_rare(briefs):
    pixels = [write_program(briefs[-1], s).code for s in range(300)]
    assert 0 < sum("HistGradientBoosting" in c for c in pixels) < 30
    many = replace(briefs[1], rows=50_000)
    kernel = [sum("SVC(" in write_program(b, s).code for s in range(400)) for b in (briefs[1], many)]
    assert kernel[1] < 0.5 * kernel[0]


def test_a_context_without_the_scaffold_is_refused():
    with pytest.raises(InvalidInput, match="scaffold='sklearn'"):
        Brief.of("titanic", "tabular", "accuracy", {})
