"""Command line: `python -m mm3 render`, `inspect` and `demo`."""

import argparse
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file

from .checkpoint import COMPONENTS, open_checkpoint
from .decode import decode
from .demo import write_demo_checkpoint, write_demo_hidden
from .flow import DEFAULT_GUIDANCE, DEFAULT_STEPS
from .hidden import load_hidden
from .load import load_dit, load_vocoder, open_whole, skeleton
from .song import NonFiniteError, encode_song, solve_song
from .timing import SAMPLE_RATE, frame_seconds
from .windows import plan

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, OSError, NonFiniteError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def render(options: argparse.Namespace) -> None:
    """Render a file of hidden frames to a WAV file."""
    soundfile = _soundfile()
    device = _device(options.device)
    if options.out.suffix.lower() != ".wav":
        raise ValueError(f"--out is {options.out}, expected a name that ends in .wav")
    dit_file, vocoder_file = open_whole(options.checkpoint, options.vocoder, options.condition_encoder)
    hidden = load_hidden(options.hidden)
    for path in filter(None, (options.out, options.latent_out)):
        if path.is_dir():
            raise ValueError(f"{path} is a folder, expected the name of a file to write")
        path.parent.mkdir(parents=True, exist_ok=True)
    with torch.inference_mode():
        dit = load_dit(dit_file, dtype=_DTYPES[options.dtype]).to(device)
        condition = encode_song(dit.condition_encoder, hidden, device=device)
        with _Bar("solving") as bar:
            latent, _ = solve_song(
                dit.transformer,
                condition,
                seed=options.seed,
                steps=options.steps,
                guidance=options.cfg,
                shift=options.time_shift,
                guided_between=(options.cfg_start, options.cfg_end),
                device=device,
                on_step=bar,
            )
        del dit
        if options.latent_out:
            save_file({"samples": latent}, options.latent_out)
        vocoder = load_vocoder(vocoder_file).to(device)
        with _Bar("decoding") as bar:
            audio = decode(vocoder, latent, device=device, on_tile=bar)
    for path, samples in zip(_out_paths(options.out, len(audio)), audio, strict=True):
        soundfile.write(path, samples.T.numpy(), SAMPLE_RATE, subtype="FLOAT")
        print(f"{path}: {samples.shape[-1] / SAMPLE_RATE:.2f} s, peak {samples.abs().max():.3f}")


def inspect(options: argparse.Namespace) -> None:
    """Say what a file or folder is."""
    checkpoint = open_checkpoint(options.path)
    for name in COMPONENTS:
        component = checkpoint.components.get(name)
        if component is None:
            print(f"{name}: not here")
            continue
        print(f"{name}: {component.layout} layout, {component.stored_as}, {component.parameters:,} parameters")
        print(f"  {component.config}")
        if component.ignored:
            print(f"  not needed: {_groups(component.ignored)}")
        component.check(skeleton(component))
        print("  complete")


def demo(options: argparse.Namespace) -> None:
    """Make a tiny model and frames, and render them."""
    folder = options.folder
    plan(options.frames)
    checkpoint = write_demo_checkpoint(folder / "checkpoint")
    hidden = write_demo_hidden(folder / "hidden.safetensors", options.frames)
    print(f"Tiny random model in {checkpoint}, {frame_seconds(options.frames):.0f} s of hidden frames in {hidden}.")
    out = folder / "demo.wav"
    render(_parser().parse_args(["render", f"--checkpoint={checkpoint}", f"--hidden={hidden}", f"--out={out}"]))
    print("The weights are random, so it is noise; with the real weights the same command renders the song.")


def _groups(names: Iterable[str]) -> str:
    """How many tensors there are under each first part of their names."""
    counts = Counter(name.split(".")[0] for name in names)
    return ", ".join(f"{part} ({count} tensors)" for part, count in counts.items())


class _Bar:
    """A progress bar fed with (done, total)."""

    def __init__(self, label: str) -> None:
        from tqdm import tqdm

        self._bar = tqdm(desc=label)

    def __enter__(self) -> Callable[[int, int], None]:
        return self._update

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def _update(self, done: int, total: int) -> None:
        self._bar.total = total
        self._bar.update(done - self._bar.n)


def _soundfile() -> types.ModuleType:
    try:
        import soundfile
        import tqdm  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the command line needs soundfile and tqdm: pip install soundfile tqdm") from error
    return soundfile


def _out_paths(out: Path, songs: int) -> list[Path]:
    if songs == 1:
        return [out]
    return [out.with_name(f"{out.stem}_{song}{out.suffix}") for song in range(1, songs + 1)]


def _device(name: str | None) -> torch.device:
    """The device of this name, or the best there is."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device is {name!r}, expected one that works here, such as cpu ({reason})") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mm3", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    command = commands.add_parser("render", help="hidden frames to a WAV file")
    command.set_defaults(run=render)
    command.add_argument("--checkpoint", type=Path, required=True, help="model folder, or a DiT file")
    command.add_argument("--vocoder", type=Path, help="vocoder file or folder, if not in the model folder")
    command.add_argument("--condition-encoder", type=Path, help="its file or folder, if not in the checkpoint")
    command.add_argument("--hidden", type=Path, required=True, help="safetensors file with `hidden` [B, F, C]")
    command.add_argument("--out", type=Path, required=True, help="WAV file to write, 32-bit float, 44.1 kHz")
    command.add_argument("--latent-out", type=Path, help="safetensors file for the latent, `samples` [B, 128, T]")
    command.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="Euler steps per window")
    command.add_argument("--cfg", type=float, default=DEFAULT_GUIDANCE, help="guidance weight; 1 halves the cost")
    command.add_argument("--time-shift", type=float, default=1.0, help="moves steps to the noise; 1 is the reference")
    command.add_argument("--cfg-start", type=float, default=0.0, help="flow time from which guidance is used")
    command.add_argument("--cfg-end", type=float, default=1.0, help="flow time up to which guidance is used")
    command.add_argument("--seed", type=int, default=0, help="seed of the noise")
    command.add_argument("--dtype", choices=_DTYPES, default="fp32", help="dtype of the wide matrix products")
    command.add_argument("--device", help="torch device (default: the best there is)")

    command = commands.add_parser("inspect", help="what a file or folder is")
    command.set_defaults(run=inspect)
    command.add_argument("path", type=Path)

    command = commands.add_parser("demo", help="make a tiny random model and render it")
    command.set_defaults(run=demo)
    command.add_argument("--folder", type=Path, default=Path("mm3-demo"), help="where to write (default: %(default)s)")
    command.add_argument("--frames", type=int, default=250, help="hidden frames, 25 per second")
    return parser


if __name__ == "__main__":
    sys.exit(main())
