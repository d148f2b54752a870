"""`wmrl serve-robometer`: the reward model in a process of its own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this subcommand to `app`."""
    app.command("serve-robometer")(serve_robometer)


def serve_robometer(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a Robometer checkpoint.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of the tokenizer of Qwen3-VL-4B-Instruct (default: the checkpoint's own).")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; there is no password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8010,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    dtype: Annotated[str | None, typer.Option(help="float32 or bfloat16 (default: bfloat16 on a GPU).")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Episodes a forward pass.")] = 8,
) -> None:
    """Serve a Robometer over HTTP; a trainer talks to it through `RemoteRewardModel`. Ends with Ctrl-C."""
    from wmrl_envs.world_models.reward.remote import make_server
    from wmrl_envs.world_models.reward.robometer import RobometerModel

    model = RobometerModel(checkpoint, tokenizer=tokenizer, dtype=dtype, device=device, batch_size=batch)
    with make_server(model, host, port) as server:
        for number in (signal.SIGINT, signal.SIGTERM):  # also where the shell that started us ignores Ctrl-C
            signal.signal(number, signal.default_int_handler)
        typer.echo(f"serving {checkpoint} at http://{host}:{server.server_address[1]}")
        server.serve_forever()
