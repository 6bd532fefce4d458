"""A file of options for `prof predict`: plan.yaml holds the model and what the options say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml
from click.core import ParameterSource

from nsight_prof.parsers import safe_yaml
from nsight_prof.parsers.errors import UsageError

MODEL, PATHS = "model", ("on", "workload")
OUTSIDE = ("help", "validate", "fail-on", "needs", "out", "quiet", "json")
"""Options that say what is done with a plan."""
ENDINGS = (".yaml", ".yml")


class Planned(click.Command):
    """A command whose MODEL may be a plan; options of the command line go before those of it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and fill in what the plan says.

        Raises:
            UsageError: the plan has keys that are no options.
        """
        rest = super().parse_args(ctx, args)
        given = ctx.params.get(MODEL)
        path = Path(given or "")
        if path.suffix not in ENDINGS or not path.is_file():
            return rest
        plan = _read(path)
        if MODEL not in plan:  # the configuration of a model, in YAML
            return rest
        options = {
            name.removeprefix("--"): parameter
            for parameter in self.get_params(ctx)
            for name in parameter.opts
            if name.startswith("--") and name.removeprefix("--") not in OUTSIDE
        }
        unknown = sorted(set(plan) - options.keys() - {MODEL})
        if unknown:
            raise UsageError(
                f"{path} has keys that are no options: {', '.join(unknown)}",
                f"it holds {MODEL} and any of {', '.join(sorted(options))}",
            )
        ctx.params[MODEL] = _path_in_folder(path, str(plan.pop(MODEL)))
        for name, value in plan.items():
            parameter = options[name]
            if ctx.get_parameter_source(str(parameter.name)) is not ParameterSource.COMMANDLINE:
                ctx.params[str(parameter.name)] = parameter.process_value(
                    ctx, _value(path, name, value, parameter)
                )
                ctx.set_parameter_source(str(parameter.name), ParameterSource.DEFAULT_MAP)
        return rest


def _read(path: Path) -> dict[str, Any]:
    try:
        data = safe_yaml.read(path)[1]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(
            f"{path} cannot be read: {str(error).splitlines()[0]}",
            "a plan is YAML: model: qwen3-32b, on: [runs/llm-kernels], batch: [1, 8]",
        ) from error
    # In YAML 1.1 the word `on` without quotes is the value true.
    found = data.items() if isinstance(data, Mapping) else ()
    return {"on" if key is True else str(key): value for key, value in found}


def _value(path: Path, name: str, value: Any, option: click.Parameter) -> Any:
    """Return a value as the command line has it: lists and mappings are joined by commas."""
    if isinstance(value, Mapping):
        value = [f"{key}:{inner}" for key, inner in value.items()]
    values = [str(item) for item in (value if isinstance(value, list) else [value])]
    if name in PATHS:
        values = [_path_in_folder(path, item) for item in values]
    return values if option.multiple else ",".join(values)


def _path_in_folder(path: Path, name: str) -> str:
    """Return a path that lies beside the plan; what does not is left as it is."""
    there = path.parent / Path(name).expanduser()
    return str(there) if there.exists() else name
