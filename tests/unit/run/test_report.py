import json
import re

import pytest

from tests.browser import EXECUTABLE, browser
from tests.unit.training.test_trainer import config, trainer
from wmrl_envs.errors import InvalidInput
from wmrl_train.run.report import write_report

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny):
    cfg = config(tmp_path_factory.mktemp("runs"), train__steps=4)
    result = {"avg": 0.25, "low": None, "high": None, "best": 0.5, "valid": 0.75, "tasks": 3, "by_task": {"a": 0.2, "b": None}}
    work = trainer(cfg, tiny, evaluate=lambda step: {"train": result, "held_out": result | {"low": 0.1, "high": 0.4}})
    work.run()
    work.close()
    work.run_dir.release()
    lines = (cfg.run_dir / "rollouts.jsonl").read_text().splitlines()
    record = json.loads(next(line for line in lines if json.loads(line)["anchored"] and json.loads(line)["turns"][0]["true"]))
    record["turns"][0] |= {"code": HOSTILE, "true": 1.0}
    (cfg.run_dir / "rollouts.jsonl").write_text("\n".join([*lines, json.dumps(record)]) + "\n")
    return cfg.run_dir


def test_report_is_self_contained_and_escapes_what_agents_wrote(run):
    page = write_report(run).read_text()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:image/svg\+xml;base64,)""", page)
    assert "default-src 'none'" in page


def test_report_shows_every_part(run):
    page = write_report(run).read_text()
    for part in ("Learning curve by reward source", "Calibration on the anchors", "Anchor weight rho", "Time by lane", "Cost ledger",
                 "executions avoided", "How the really executed programs ended", "Audit of the world model", "Best executed solutions",
                 "step 0: avg@8", "0.250", "[0.100, 0.400]"):  # fmt: skip
        assert part in page, part
    assert page.count("data:image/svg+xml;base64,") == 5


def test_report_of_a_run_that_has_just_begun(tmp_path, tiny):
    cfg = config(tmp_path)
    work = trainer(cfg, tiny)
    work.close()
    assert "0 of 6 steps" in write_report(cfg.run_dir).read_text()


def test_no_run_no_report(tmp_path):
    with pytest.raises(InvalidInput, match="holds no run"):
        write_report(tmp_path)


@pytest.fixture
def page(tmp_path):
    if EXECUTABLE is None:
        pytest.skip("no Chromium on this machine")
    with browser(tmp_path / "profile") as opened:
        yield opened


def test_the_report_as_a_real_browser_shows_it(run, page, tmp_path):
    """Opened from disk: nothing is asked for outside the page, nothing is complained about, every plot is drawn."""
    report = write_report(run)
    seen = page.open(report.as_uri())
    assert seen.problems == []
    assert [r for r in seen.requests if not r.startswith("data:")] == [report.as_uri()]
    plots = page.evaluate(
        "Array.from(document.images).map(i => [i.alt, i.complete && i.naturalWidth, i.getBoundingClientRect().height])"
    )
    assert len(plots) == 5
    for title, width, height in plots:
        assert width > 100, title
        assert height > 100, title
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window"
    assert page.evaluate("document.querySelectorAll('details pre').length") >= 2
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000


def test_the_browser_notices_what_a_report_must_not_do(page, tmp_path):
    """So that the test above can fail: a script, a broken picture, a request to elsewhere."""
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('one'); two()</script>")
    seen = page.open(bad.as_uri())
    assert "http://127.0.0.1:9/x.png" in seen.requests
    assert len(seen.problems) >= 3
    assert page.evaluate("document.images[0].naturalWidth") == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"5", "line 1 holds a int, expected an object"),
        (b"[1]", "line 1 holds a list, expected an object"),
        (b"\xff\xfe", "line 1 is not JSON"),
        (b"[" * 100_000, "line 1 is not JSON"),
        (b'{"reward/executed": 1}', "not of `wmrl train` .KeyError: 'step'"),
        (b'{"step": 1, "eval": 5}', "not of `wmrl train`"),
    ],
)
def test_a_damaged_log_is_one_sentence(tmp_path, line, message):
    (tmp_path / "config.yaml").write_text("{}")
    (tmp_path / "metrics.jsonl").write_bytes(line + b"\n")
    with pytest.raises(InvalidInput, match=message):
        write_report(tmp_path)


def test_a_folder_is_no_log(tmp_path):
    (tmp_path / "config.yaml").write_text("{}")
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(InvalidInput, match=r"metrics\.jsonl cannot be read"):
        write_report(tmp_path)
