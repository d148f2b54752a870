"""The arms of the study: what each changes in one common configuration. Nothing else differs between them."""

from __future__ import annotations

from pathlib import Path

BANK = str(Path(__file__).parent / "bank.jsonl.xz")

COMMON = [
    "run.threads=1", "train.steps=30", "train.save_every=1000", "tracking.samples_every=1000",
    "execution.sandbox=replay", f"execution.store={BANK}", "execution.timeout_s=6", "execution.cpu_s=null", f"agent.options.programs={BANK}", "world_model.options.learn=false",
    "eval.k=16", "eval.every=15",
    # The paper's method, as the stored runs of main, structured and sensitivity were made; PLACEMENT sets these anew.
    "correction.direction=inverse", "anchors.memory=false", "correction.on_alarm=warn",
]  # fmt: skip
"""Executions are replayed at their recorded cost. The world model is frozen, as the paper's is: all that adapts to anchors is the
correction. 16 samples a task estimate the same mean as avg@8 with less noise; replays cost nothing."""

REAL = ["world_model.kind=none", "world_model.options={}", "anchors.fraction=1"]
ALONE = ["anchors.fraction=0", "anchors.min_groups=0", "correction.debias=false", "correction.denoise=false"]

ARMS: dict[str, list[str]] = {
    "real": REAL,
    "world-model": ALONE,
    "mixture": ["correction.debias=false", "correction.denoise=false"],
    "debias": ["correction.denoise=false"],
    "denoise": ["correction.debias=false"],
    "wmrl": [],
    "cv": ["correction.fusion=cv"],
    "auto": ["correction.fusion=auto"],
    "same-budget": [*REAL, "rollout.groups=1"],
    "same-budget-short": [*REAL, "train.steps=4"],
    "wmrl-longer": ["train.steps=60"],
    "wmrl-learning": ["world_model.options.learn=true"],
    "wmrl-budget": ["train.steps=45"],
    "wmrl-budget-learning": ["train.steps=45", "world_model.options.learn=true"],
}
"""`same-budget`: real execution of one group a step, and `same-budget-short`: of eight groups for four steps: both pay
for as many executions as `wmrl`. `wmrl-longer`: twice the steps, at a quarter of the executions of `real`. `wmrl-learning`: the world
model learns from the anchors too, which the paper's cannot. `wmrl-budget`: as many steps as 1/3.4 of the compute of `real` buys, the paper's ratio."""

NAMES = {
    "untrained": "untrained", "real": "GRPO, real execution", "world-model": "world model alone", "mixture": "plain mixture",
    "debias": "Online Debiasing", "denoise": "Inverse-Variance Denoising", "wmrl": "both (WMRL)", "cv": "control variate",
    "auto": "auto", "same-budget": "real, WMRL's executions (1 group a step)",
    "same-budget-short": "real, WMRL's executions (8 groups, 4 steps)", "wmrl-longer": "WMRL, twice the steps", "wmrl-learning": "WMRL, learning world model",
    "wmrl-budget": "WMRL, 1/3.4 of the compute", "wmrl-budget-learning": "WMRL, 1/3.4 of the compute, learning world model",
}  # fmt: skip

PLANTED = ["world_model.kind=planted:PlantedErrorWorldModel"]
STRUCTURED: dict[str, list[str]] = {
    f"planted-{name}": [*ARMS[name], *PLANTED] for name in ("world-model", "mixture", "debias", "denoise", "wmrl", "cv", "auto")
} | {"planted-wmrl-act": [*PLANTED, "correction.on_alarm=act"], "honest-wmrl-act": ["correction.on_alarm=act"]}
"""The same arms with a world model that scores programs with a dummy estimator at 0.9, and what the reactions cost without one."""

PLAIN = ["correction.debias=false", "correction.denoise=false"]
FAVOURITES = ["anchors.place=favourites", "anchors.random_share=0", *PLAIN]
_PLACEMENT: dict[str, list[str]] = {
    "real": REAL,
    "mixture": PLAIN,
    "wmrl": [],
    "wmrl-auto-map": ["correction.direction=auto"],
    "favourites": FAVOURITES,
    "favourites-checked": ["anchors.place=favourites", "correction.direction=auto"],
    "members": ["anchors.place=members", *PLAIN],
    "members-dr": ["anchors.place=members", "correction.debias=false", "correction.fusion=dr"],
    "favourites-forgetful": [*FAVOURITES, "anchors.memory=false"],
    "mixture-forgetful": [*PLAIN, "anchors.memory=false"],
    "planted-favourites": [*FAVOURITES, *PLANTED],
    "planted-members": ["anchors.place=members", *PLAIN, *PLANTED],
    "planted-mixture": [*PLAIN, *PLANTED],
}
PLACEMENT = {name: ["anchors.memory=true", "correction.on_alarm=free", *settings] for name, settings in _PLACEMENT.items()}
"""Where anchors are placed, with the memory of executed programs that is on by default; `-forgetful`: without it. `favourites` executes the
member of every group that its predictions like best, `favourites-checked` a random one in a quarter of the groups, for pool and audit."""

SENSITIVITY: dict[str, list[str]] = {
    "anchors-1/32": ["anchors.fraction=0.03125", "anchors.min_groups=0"],
    "anchors-1/16": ["anchors.fraction=0.0625", "anchors.min_groups=0"],
    "anchors-1/4": ["anchors.fraction=0.25"],
    "anchors-1/2": ["anchors.fraction=0.5"],
    "group-4": ["rollout.group_size=4", "rollout.groups=16"],
    "group-16": ["rollout.group_size=16", "rollout.groups=4", "anchors.fraction=0.25"],
    "refit-8": ["correction.refit_every=8"],
    "refit-128": ["correction.refit_every=128"],
    "warm-up-200": ["correction.min_pairs=200"],
    "regression": ["correction.direction=regression"],
    "in-sample": ["correction.prequential=false"],
    "lag-2": ["anchors.lag=2"],
    "lag-4": ["anchors.lag=4"],
    "lag-8": ["anchors.lag=8"],
}
"""Each changes one setting of `wmrl`; 64 trajectories a step in all of them."""

SHORT = ["train.steps=15", "eval.k=4"]
FREE = ["agent.options.programs=null", "execution.sandbox=process", "execution.store=null"]
LIVE: dict[str, list[str]] = {
    f"{kind}-{name}": [*ARMS[name], *SHORT, *extra]
    for kind, extra in (("live", FREE), ("trie", []))
    for name in ("real", "world-model", "mixture", "debias", "denoise", "wmrl", "cv")
}
"""Half as many steps, without the trie and really executed (`live-`), and the same under the trie (`trie-`)."""

SMALL = ["policy.model=smollm2", "rollout.max_new_tokens=400", "rollout.groups=4", "rollout.group_size=4", "anchors.fraction=0.25",
         "train.steps=12", "eval.k=2", "eval.every=12", "correction.min_pairs=12", "correction.refit_every=8", "optim.lr=1e-5"]  # fmt: skip
SMOLLM2: dict[str, list[str]] = {
    f"smollm2-{name}": [*SMALL, *ARMS[name]] for name in ("real", "world-model", "mixture", "wmrl")
}
"""SmolLM2-135M, untrained on the grammar, under the trie of the bank in its own tokens. Everything is small: a step takes minutes."""

STUDIES = {
    "main": ARMS,
    "placement": PLACEMENT,
    "structured": STRUCTURED,
    "sensitivity": SENSITIVITY,
    "live": LIVE,
    "smollm2": SMOLLM2,
}
