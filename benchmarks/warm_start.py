"""How good the warm-started policy is, by really executing its programs; the figures go into its provenance.json.

python benchmarks/warm_start.py [MODEL_DIR] [K]      # K attempts a task at temperature 1.0, 1,000 training rows, 20 s
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import wmrl_train


def main() -> None:
    """Evaluate on training and held-out tasks and note the result beside the model."""
    shipped = Path(wmrl_train.__file__).parent / "engines" / "assets" / "demo"
    model = Path(sys.argv[1]) if len(sys.argv) > 1 else shipped
    k = sys.argv[2] if len(sys.argv) > 2 else "8"
    measured = {}
    for split in ("train", "held_out"):
        out = Path("runs/warm-start-eval") / split
        command = [
            Path(sys.executable).with_name("wmrl"),
            "eval",
            "--agent",
            str(model),
            "--tasks",
            split,
            "--k",
            k,
            "--timeout-s",
            "20",
        ]
        result = subprocess.run([*command, "--json", "--out", str(out)], check=True, capture_output=True, text=True)
        table = json.loads(result.stdout.splitlines()[-1])
        rows = {"overall": table["overall"], **table["tasks"]}
        measured[split] = {name: {"valid": row["valid"], "avg_score": row["avg"]} for name, row in rows.items()}
        print(split, json.dumps(measured[split], indent=1))
    path = model / "provenance.json"
    provenance = json.loads(path.read_text()) | {"measured": {"attempts_a_task": int(k), "temperature": 1.0, **measured}}
    path.write_text(json.dumps(provenance, indent=2) + "\n")


if __name__ == "__main__":
    main()
