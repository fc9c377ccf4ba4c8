"""Inputs that several nodes have."""

from comfy_api.latest import io

from ..mm3.flow import DEFAULT_GUIDANCE, DEFAULT_STEPS

MAX_SEED = 0xFFFFFFFFFFFFFFFF
_MAX_SECONDS = 361.0


def seconds_input(name: str, tooltip: str, *, default: float = 0.0, optional: bool = False) -> io.Input:
    """A position in the audio of a song."""
    return io.Float.Input(
        name, default=default, min=0.0, max=_MAX_SECONDS, step=0.01, optional=optional, tooltip=tooltip
    )


def seed_input(tooltip: str, *, default: int = 0) -> io.Input:
    """Seed of the noise."""
    return io.Int.Input("seed", default=default, min=0, max=MAX_SEED, control_after_generate=True, tooltip=tooltip)


def step_inputs() -> list[io.Input]:
    """Steps and guidance weight, for every node that solves."""
    return [
        io.Int.Input(
            "steps",
            default=DEFAULT_STEPS,
            min=1,
            max=1000,
            tooltip="Euler steps per window. Time grows with it.",
        ),
        io.Float.Input(
            "cfg",
            default=DEFAULT_GUIDANCE,
            min=0.0,
            max=100.0,
            step=0.1,
            round=0.01,
            tooltip="Guidance weight. 1.7 is the reference; 1 runs without guidance in half the time.",
        ),
    ]


def schedule_inputs() -> list[io.Input]:
    """How the steps are spread over flow time, and where guidance is used."""
    return [
        io.Float.Input(
            "time_shift",
            default=1.0,
            min=0.1,
            max=10.0,
            step=0.1,
            optional=True,
            advanced=True,
            tooltip="Moves the steps towards the noise, so that fewer are needed. 1.0 is the reference. Pairs of steps "
            "and shift that another project found equal: 30 and 1.0, 20 and 1.5, 16 and 2.0, 12 and 3.0.",
        ),
        _flow_time_input(
            "cfg_start", 0.0, "Flow time from which guidance is used: 0.0 is noise. Before it, steps cost half."
        ),
        _flow_time_input(
            "cfg_end",
            1.0,
            "Flow time up to which guidance is used: 1.0 is the finished latent. From it on, steps cost half.",
        ),
    ]


def _flow_time_input(name: str, default: float, tooltip: str) -> io.Input:
    return io.Float.Input(
        name, default=default, min=0.0, max=1.0, step=0.05, optional=True, advanced=True, tooltip=tooltip
    )
