"""The paper in code, without I/O: anchor pairs in, calibrated scores and group weights out.

Online Debiasing is `Recalibrator`, Inverse-Variance Denoising is `FusionWeight`; `Corrector` ties them together.
"""

from wmrl_envs.correction.audit import AnchorAudit
from wmrl_envs.correction.corrector import Corrector
from wmrl_envs.correction.fuse import FusionWeight, fuse, fusion_weights
from wmrl_envs.correction.pool import AnchorPool
from wmrl_envs.correction.recalibrate import Recalibrator, recalibrate
from wmrl_envs.correction.schedule import AnchorSchedule

__all__ = [
    "AnchorAudit",
    "AnchorPool",
    "AnchorSchedule",
    "Corrector",
    "FusionWeight",
    "Recalibrator",
    "fuse",
    "fusion_weights",
    "recalibrate",
]
