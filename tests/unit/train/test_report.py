import json
import re
import shutil
import subprocess

import pytest

from tests.unit.train.test_trainer import config, trainer
from wmrl_envs.errors import InvalidInput
from wmrl_train.report import write_report

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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_report_opens_in_a_browser(run, tmp_path):
    """Every figure is decoded and drawn; nothing outside the page is asked for (the page's own policy forbids it)."""
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=5000",
    ]
    page = write_report(run).as_uri()
    dom = subprocess.run([*command, "--dump-dom", page], capture_output=True, text=True, timeout=240, check=True).stdout
    assert dom.count("<img") == 5
    picture = tmp_path / "page.png"
    subprocess.run(
        [*command, f"--screenshot={picture}", "--window-size=1200,2400", page], capture_output=True, timeout=240, check=True
    )
    assert picture.stat().st_size > 50_000
