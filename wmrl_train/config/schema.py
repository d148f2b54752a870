"""The configuration of a run: pydantic models, one a section, importable without torch.

A run is configured by a YAML file (or the name of one shipped in `wmrl_train/configs`) and dotted overrides:
`load_config("laptop", ["train.steps=3", "optim.lr=5e-4"])`. Every default below is the paper's setting
(Appendix D) where the paper has one. An unknown key is refused, and the nearest valid one is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """Base of the sections: strict about keys, immutable, documented by the docstring under each field."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class RunConfig(Section):
    name: str = Field(default="run", pattern=r"^\.*[\w-][\w.-]*$")
    """Name of the run; its directory is `<dir>/<name>`, never `<dir>/..`."""
    dir: str = "runs"
    seed: int = Field(default=0, ge=0)
    threads: int | None = Field(default=None, ge=1)
    """Torch threads; null leaves torch's own choice."""
    min_free_disk_mb: int = Field(default=512, ge=0)
    """A run does not start, and does not write a checkpoint, with less free space than this."""


class TrainConfig(Section):
    steps: int = Field(default=100, ge=1)
    save_every: int = Field(default=5, ge=1)
    """Steps between two checkpoints; one is also written at the end and on Ctrl-C."""
    keep_checkpoints: int = Field(default=2, ge=1)


class TasksConfig(Section):
    train: str | list[str] = "train"
    """A split ("train", "held_out") or a list of tasks."""
    held_out: str | list[str] = "held_out"
    """Tasks that are only evaluated."""
    source: Literal["builtin", "mledojo", "dsbench"] | None = None
    """Take only the tasks of a split that come from here."""
    data_dir: str | None = None
    too_long: Literal["refuse", "skip"] = "refuse"
    """Tasks whose first prompt does not fit the context: the run does not start, or leaves them out."""
    scaffold: Literal["sklearn"] | None = None
    """"sklearn": a prelude loads and splits the columns, for small policies. null: whole scripts, as in the paper."""
    max_rows: int | None = Field(default=None, ge=10)
    """Training rows the prelude reads; null reads all."""
    max_turns: int = Field(default=4, ge=1)
    reward_mode: Literal["improvement", "score", "final"] = "improvement"
    observation_tokens: int = Field(default=1024, ge=16)
    options: dict[str, Any] = Field(default_factory=dict)
    """Further keyword arguments of the environment."""


class ExecutionConfig(Section):
    sandbox: Literal["auto", "process", "docker", "ray", "replay"] = "auto"
    """"process": on this machine. "ray": on the nodes of a Ray cluster. "replay": recorded executions only. "auto": "process",
    or "docker" where this machine can isolate only with it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further keyword arguments of the sandbox, such as `address` of the Ray cluster."""
    store: str | None = None
    """Where recorded executions are: the folder of a store, or the file of an execution bank (for "replay")."""
    timeout_s: float = Field(default=1200.0, gt=0)
    """Wall clock of a program."""
    cpu_s: float | None = Field(default=None, gt=0)
    """CPU time of a program, all its processes and threads together; null: the wall clock alone. It is the same on a busy
    machine.
    """
    memory_mb: int = Field(default=4096, ge=64)
    workers: int | None = Field(default=None, ge=1)
    """Executions at a time; null: one a core (Ray: as many as its nodes have room for)."""
    cache: bool = True
    """Answer an execution that was paid before (same program, data and limits) from the cache on disk."""

    @property
    def effective_s(self) -> float:
        """Seconds a program that only computes may take."""
        return self.timeout_s if self.cpu_s is None else min(self.timeout_s, self.cpu_s)


class LoraConfig(Section):
    r: int = Field(default=32, ge=1)
    alpha: int = Field(default=64, ge=1)
    dropout: float = Field(default=0.0, ge=0, le=0)
    """Always 0: dropout would train another policy than the one that sampled, so it is refused."""
    target_modules: str | list[str] = "all-linear"


class PolicyConfig(Section):
    model: str = "demo"
    """"demo" (the warm-started checkpoint of this package), "smollm2" (`wmrl model fetch smollm2`), or a directory."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """What samples; an OpenAI-compatible server cannot take new weights and serves world models and evaluations only."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    replicas: int | None = Field(default=None, ge=1)
    """Generation workers, each an engine of its own on a node of a Ray cluster; null: one engine, in this process."""
    replica_gpus: float = Field(default=1.0, ge=0)
    """GPUs a replica takes."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    lora: LoraConfig | None = None
    gradient_checkpointing: bool = False


class AgentConfig(Section):
    name: Literal["program", "research", "vla"] = "research"
    """"program": the small policy that completes a prelude. "research": the AutoResearch scaffold of the paper. "vla": a
    vision-language-action policy in LIBERO (section `libero`)."""
    options: dict[str, Any] = Field(default_factory=dict)


class RolloutConfig(Section):
    groups: int = Field(default=8, ge=1)
    """Groups a step, m."""
    group_size: int = Field(default=8, ge=2, description="Trajectories a group, n; a group of one has no advantage.")
    max_new_tokens: int = Field(default=4096, ge=1)
    """Tokens a turn."""
    max_context: int | None = Field(default=None, ge=8)
    """Tokens of a whole conversation; null: what the model allows."""
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    batch_size: int = Field(default=64, ge=1)
    """Sequences generated together."""
    generation_workers: int = Field(default=1, ge=1)
    """Generation batches at a time; more than 1 only for server engines."""
    prediction_workers: int = Field(default=1, ge=1)
    retries: int = Field(default=2, ge=0)
    """Further attempts after an infrastructure failure, before the group is dropped."""

    @model_validator(mode="after")
    def _whole_distribution(self) -> RolloutConfig:
        if self.top_p != 1.0:
            raise ValueError(
                f"top_p={self.top_p} cuts the distribution the learner differentiates, so that its log-probabilities would not "
                "be those of the samples; expected 1.0 for training"
            )
        return self


class WorldModelConfig(Section):
    kind: str = Field(default="static", pattern=r"^(static|low_fidelity|stacked|simulator|ensemble|none|[\w.]+:\w+)$")
    """"static": static analysis plus a regression that learns on the anchors. "low_fidelity": the program run on a reduced copy
    of its task (`options.rows`, `options.test_rows`). "simulator": language-model checks. "stacked": `members`, the most
    trusted one first, weighed by what the anchors teach (`options.budget`). "ensemble": `members` together. "none": nothing
    is predicted, every group is executed (plain GRPO). "package.module:Class": a world model of yours."""
    members: list[WorldModelConfig] = Field(default_factory=list)
    """Of "stacked" or "ensemble", each with the keys of this section: [{kind: low_fidelity}, {kind: static}]."""
    workers: int | None = Field(default=None, ge=1)
    """Predictions at a time of "low_fidelity", below executions in priority; null: as many as the sandbox has room for."""
    engine: Literal["policy", "transformers", "vllm", "openai"] = "policy"
    """Where the simulator's completions come from; "policy": the agent's own backbone, frozen (the base under LoRA, else a
    copy).
    """
    model: str | None = None
    """Model of that engine; null: policy.model."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    """Further keyword arguments of the world model."""


class AnchorsConfig(Section):
    fraction: float = Field(default=0.125, ge=0, le=1)
    """Share of the groups that are also really executed; 1.0 is plain GRPO."""
    min_groups: int = Field(default=1, ge=0)
    lag: int = Field(default=0, ge=0)
    """Steps of slack for anchor groups; 0: a step waits for its anchors."""
    when: Literal["during", "after"] = "during"
    """"during": an anchor group reads the feedback of its executions, as in the paper. "after": every group is rolled out in
    the world model and anchors are executed afterwards, so that all episodes come from one distribution."""
    place: Literal["groups", "members", "favourites"] = "groups"
    """What is executed: whole groups (the paper), random members of every group, or the members their predictions like best
    among those whose truth is not known; the last two after the rollout, the best turn of each. `fraction` is the share of
    episodes either way."""
    random_share: float = Field(default=0.25, ge=0, le=1)
    """Of the favourites: share that is a random member instead, for the pool, eta2 and the audit (favourites are no random
    sample).
    """
    memory: bool = True
    """A program that was executed keeps its true score wherever it is written again, and is not executed twice."""
    stratify: bool = False
    """Spread the anchors of a step over its tasks."""


class CorrectionConfig(Section):
    debias: bool = True
    """Online Debiasing: the monotone map fitted to the anchor pairs."""
    denoise: bool = True
    """Inverse-Variance Denoising: the anchor weight rho."""
    min_pairs: int = Field(default=200, ge=2)
    refit_every: int = Field(default=64, ge=1)
    direction: Literal["inverse", "regression", "auto"] = "inverse"
    levels: int = Field(default=10, ge=2)
    w_max: float = Field(default=4.0, ge=1)
    window: int = Field(default=512, ge=1)
    """Latest pairs that eta2, the rules and the audit look at."""
    per_task: bool = False
    """Mix the common map with the task's own, by the task's pairs."""
    two_stage: bool = False
    """P(valid) times the map of the valid ones, since scores have a point mass at 0."""
    fusion: Literal["ivw", "cv", "dr", "auto", "none"] = "ivw"
    prequential: bool = True
    """Residuals by the map as it was before their pair; false: by the map refitted with it (for comparison)."""
    on_alarm: Literal["warn", "free", "act"] = "free"
    """What an alarm of the audit does: "warn" says it; "free" also leaves predicted groups out of the update while the audit
    asks for that, which costs no execution; "act" also raises the anchors, which does, and stops."""
    scale: Literal["none", "std"] = "none"
    """"std" divides the advantages of a group by their standard deviation; the paper's estimator does not."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimConfig(Section):
    lr: float = Field(default=1e-6, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    """Steps of linear warm-up; constant afterwards."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    loss: Literal["grpo", "dr_grpo", "dapo", "cispo"] = "grpo"
    """"dr_grpo": the sum over a trajectory's tokens, as in Equation 1, over a constant. "grpo": the mean over its tokens."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    kl_coef: float = Field(default=0.04, ge=0)
    """Coefficient of the KL divergence to the frozen initial policy (k3)."""
    entropy_coef: float = Field(default=0.002, ge=0)
    epochs: int = Field(default=1, ge=1)
    """Passes over a step's rollouts; with 1 the ratio is exactly 1."""
    mismatch_alarm: float | None = Field(default=0.05, gt=0)
    """KL divergence a token between sampler and learner, nats, above which a step warns; null: never."""
    is_cap: float = Field(default=2.0, ge=1)
    """Cap of the truncated importance weight learner / sampler."""
    tokens_per_micro_batch: int = Field(default=16384, ge=64)
    offload: bool = False
    """Keep the optimizer's moments in host memory between updates (8 bytes a trained weight of GPU memory less)."""


class EvalConfig(Section):
    k: int = Field(default=8, ge=0)
    """Samples a task before and after training, really executed; 0 evaluates nothing."""
    every: int | None = Field(default=None, ge=1)
    """Also evaluate every so many steps."""
    temperature: float = Field(default=1.0, ge=0)
    held_out: bool = True


class TrackingConfig(Section):
    trackers: list[Literal["tensorboard", "wandb", "trackio"]] = Field(default_factory=list)
    """JSONL is always written; these come on top."""
    project: str = "wmrl"
    samples_every: int = Field(default=10, ge=1)
    """Steps between two tables of sampled solutions in the log."""


class LiberoConfig(Section):
    """Of `agent.name: vla`: the options of `wmrl grpo`, in a file."""

    task: int | str | list[int | str] = 8
    """Index, name or instruction; a list of them, or "all" of the suite, is trained together, a group of each in turn."""
    suite: str = "libero_10"
    init_states: str = "train"
    """"train" (the first 16 official ones), "all", or an .npz of start states."""
    reward: str | None = None
    """A reward model: http://... (`wmrl serve-robometer`) or a ProgressModel's file. null: the simulator's success, every group
    real.
    """
    form: Literal["potential", "final", "max", "success"] | None = None
    """Of the dense reward, from eight frames' progress; null: "potential" of a server, and of a file its own."""
    simulators: int = Field(default=2, ge=1)
    """At once, 1 to 2.5 GB each."""
    max_steps: int = Field(default=520, ge=1)
    """Simulator steps an episode."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further keyword arguments of the environment."""


class EstimateConfig(Section):
    """Seconds a program (a turn of a trajectory) that `wmrl train --dry-run` counts with; a run's own times by `--like
    RUN_DIR`.
    """

    generate_s: float | None = Field(default=None, ge=0)
    """Of the generation lane."""
    predict_s: float | None = Field(default=None, ge=0)
    execute_s: float | None = Field(default=None, ge=0)
    learn_s: float | None = Field(default=None, ge=0)


class Config(Section):
    """The whole configuration of a run."""

    run: RunConfig = RunConfig()
    train: TrainConfig = TrainConfig()
    tasks: TasksConfig = TasksConfig()
    execution: ExecutionConfig = ExecutionConfig()
    policy: PolicyConfig = PolicyConfig()
    agent: AgentConfig = AgentConfig()
    rollout: RolloutConfig = RolloutConfig()
    world_model: WorldModelConfig = WorldModelConfig()
    anchors: AnchorsConfig = AnchorsConfig()
    correction: CorrectionConfig = CorrectionConfig()
    optim: OptimConfig = OptimConfig()
    eval: EvalConfig = EvalConfig()
    tracking: TrackingConfig = TrackingConfig()
    libero: LiberoConfig = LiberoConfig()
    estimate: EstimateConfig = EstimateConfig()

    @model_validator(mode="before")
    @classmethod
    def _all_groups_real(cls, values: Any) -> Any:
        """Of a robot without a reward model every group is an anchor, unless another share is asked for (which is refused
        later).
        """
        section = {name: values.get(name) or {} for name in ("agent", "libero", "anchors")} if isinstance(values, dict) else {}
        if not section or not all(isinstance(part, dict) for part in section.values()):
            return values
        robot = section["agent"].get("name") == "vla" and section["libero"].get("reward") is None
        return values | {"anchors": {"fraction": 1.0} | section["anchors"]} if robot else values

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        if self.anchors.min_groups > self.rollout.groups:
            raise ValueError(f"anchors.min_groups={self.anchors.min_groups} is more than rollout.groups={self.rollout.groups}")
        if self.world_model.kind == "none" and self.anchors.fraction < 1:
            raise ValueError(
                'world_model.kind="none" predicts nothing, so every group must be executed: set anchors.fraction=1'
            )
        if self.rollout.max_context is not None and self.rollout.max_context <= self.rollout.max_new_tokens:
            raise ValueError(
                f"rollout.max_context={self.rollout.max_context} leaves no room for a prompt beside "
                f"rollout.max_new_tokens={self.rollout.max_new_tokens}"
            )
        if (self.world_model.kind in ("ensemble", "stacked")) != bool(self.world_model.members):
            raise ValueError(
                'world_model.members is what world_model.kind="stacked" or "ensemble" needs, and only that: '
                "name at least one there"
            )
        for model in (self.world_model, *self.world_model.members):
            if model.workers is not None and model.kind != "low_fidelity":
                raise ValueError(
                    f'world_model.workers={model.workers} is of use with kind="low_fidelity" alone, not {model.kind!r}'
                )
        if self.agent.name != "vla" and self.libero != LiberoConfig():
            raise ValueError('libero.* is of use with agent.name="vla" alone')
        if not self.tasks.train:
            raise ValueError("tasks.train is empty: name a split or at least one task")
        return self

    @property
    def run_dir(self) -> Path:
        return Path(self.run.dir).expanduser() / self.run.name

    def to_yaml(self) -> str:
        """The resolved configuration; `load_config` of this text gives the same configuration back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
