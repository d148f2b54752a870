"""LIBERO behind `LIBERO-Long-v0`: the installed package, its tasks, the simulator (in a process of its own) and scripted
controllers.

Nothing here imports LIBERO, robosuite or MuJoCo before a simulator is built.
"""

from wmrl_envs.envs.libero.install import check

__all__ = ["check"]
