"""The command `mirrormark`: the only place that wires rooms together.

Each subcommand is a typed function in its own room; tyro turns its signature into options. Rooms are imported
only when their command is called, so that `mirrormark --help` answers at once.
"""

import importlib
import sys

import tyro

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "mirrormark.report.demo:demo",
        "the shipped infant takes a short exam before its mirror: no GPU, no OpenGL",
    ),
    "train": ("mirrormark.train_command:train", "let an agent grow up: train or resume a run"),
    "sweep": (
        "mirrormark.sweep.run:sweep",
        "train and examine many seeds, bodies and settings, with one report",
    ),
    "runs": ("mirrormark.sweep.status:runs", "list runs and their state"),
    "exam": ("mirrormark.report.commands:exam", "take the mirror-mark exam with all its controls"),
    "lab": ("mirrormark.lab.command:lab", "meet the body in the browser, live: stick a mark on it"),
    "report": ("mirrormark.report.commands:report", "write the report of an exam again from its tables"),
    "bench world": ("mirrormark.envs.bench:bench_world", "how fast the world runs here"),
    "bench tokenizer": (
        "mirrormark.bench:bench_tokenizer",
        "train each tokenizer for a while and compare what it sees",
    ),
    "bench learn": ("mirrormark.bench:bench_learn", "how fast one train step runs here"),
    "bench exam": ("mirrormark.exam.bench:bench_exam", "how long the default exam takes here"),
    "bench chance": (
        "mirrormark.exam.bench:bench_chance",
        "how often motor babbling and the oracle remove a mark",
    ),
}


def main() -> None:
    """Entry point. A mistake in the input ends with one sentence, not a traceback."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] == "--version":
        from mirrormark import __version__

        print(__version__)
        return
    name = next((n for n in COMMANDS if arguments[: len(n.split())] == n.split()), None)
    if name is None:
        _usage(arguments)
        return
    module, function = COMMANDS[name][0].split(":")
    command = getattr(importlib.import_module(module), function)
    words = len(name.split())
    try:
        if name == "train":  # its options depend on the preset: it reads its own words
            command(arguments[words:])
        else:
            tyro.cli(command, prog=f"mirrormark {name}", args=arguments[words:])
    except (ValueError, OSError) as mistake:
        print(f"mirrormark {name}: {_sentence(mistake)}", file=sys.stderr)
        sys.exit(2)


def _sentence(mistake: ValueError | OSError) -> str:
    """Our own errors are sentences already; the system's name a path and a reason."""
    if isinstance(mistake, OSError) and mistake.filename is not None:
        return (
            f"{mistake.filename} cannot be read or written ({mistake.strerror}):"
            " check the paths you named, or choose another folder with --out."
        )
    return str(mistake)


def _usage(arguments: list[str]) -> None:
    asked = not arguments or arguments[0] in ("-h", "--help", "help")
    out = sys.stdout if asked else sys.stderr
    if not asked:
        print(f"mirrormark: {' '.join(arguments[:2])!r} is no command; these are:\n", file=out)
    print("usage: mirrormark COMMAND [OPTIONS]   (mirrormark COMMAND --help tells its options)\n", file=out)
    width = max(map(len, COMMANDS))
    for name, (_, what) in COMMANDS.items():
        print(f"  {name:<{width}}  {what}", file=out)
    sys.exit(0 if asked else 2)
