"""Define the commands of `ssr`, and parse a command line into the settings of one of them."""

from __future__ import annotations

import importlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cyclopts import App, CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from harness.cli.parameters import signature_of
from harness.cli.sources import Sources
from harness.other_systems import command_here
from harness.settings.plan import CommandSettings, Leaf, build, leaves_of
from pytest_ssr import __version__
from pytest_ssr.errors import SettingsError
from pytest_ssr.project.settings_table import suggestion

if TYPE_CHECKING:
    from harness.settings.training import OwnTraining

TRAINERS = "pytest_ssr.trainers"
"""The group of entry points with methods of `ssr train` of other packages."""
_EPILOGUE = """\
Each option is also a variable (SSR_TRIES for --tries) and a key in the YAML file of --config and in [tool.ssr] of \
pyproject.toml. Flags come first, then variables, the YAML file, [tool.ssr].

example: {}"""
_WITHOUT_COMMAND = ("--help", "-h", "--version")
_DOTTED = re.compile(r"([a-z_-]+\.[a-z_-]+)=.*", re.DOTALL)


class Command(NamedTuple):
    """Where a command is defined; both modules are imported only if the command is used."""

    settings: str
    run: str

    def load_settings(self) -> type[CommandSettings]:
        """Return the class of its settings."""
        loaded: type[CommandSettings] = _load(f"harness.settings.{self.settings}")
        return loaded

    def load_run(self) -> Callable[[CommandSettings], int]:
        """Return its function, which returns the exit code."""
        loaded: Callable[[CommandSettings], int] = _load(f"harness.cli.commands.{self.run}")
        return loaded


class OwnTrainer(NamedTuple):
    """A method of `ssr train` of another package, whose settings also train; imported only if the method is used."""

    point: EntryPoint

    def load_settings(self) -> type[OwnTraining]:
        """Return the class of its settings; raises SettingsError if the entry point names anything else."""
        from harness.environments.extensions import load_extension
        from harness.settings.training import OwnTraining

        loaded = load_extension(self.point)
        if not (isinstance(loaded, type) and issubclass(loaded, OwnTraining)):
            raise SettingsError(f"the entry point {self.point.name} = {self.point.value} is not an OwnTraining")
        return loaded

    def load_run(self) -> Callable[[CommandSettings], int]:
        """Return its function, which returns the exit code."""
        run: Any = self.load_settings().train
        return run  # type: ignore[no-any-return]


COMMANDS = {
    "inject": Command("commands:InjectSettings", "inject:inject"),
    "review": Command("survivors:ReviewSettings", "inject:review"),
    "watch": Command("survivors:WatchSettings", "watch:watch"),
    "accept": Command("survivors:AcceptSettings", "accept:accept"),
    "prove": Command("survivors:ProveSettings", "prove:prove"),
    "feedback": Command("survivors:FeedbackSettings", "accept:feedback"),
    "mcp": Command("agent_tools:McpSettings", "agent_tools:mcp"),
    "skill": Command("agent_tools:SkillSettings", "agent_tools:skill"),
    "validate": Command("commands:ValidateSettings", "artifacts:validate"),
    "merge": Command("commands:MergeSettings", "merge:merge"),
    "list": Command("commands:ListSettings", "artifacts:list_store"),
    "show": Command("commands:ShowSettings", "show:show"),
    "grade": Command("commands:GradeSettings", "artifacts:grade"),
    "solve": Command("commands:SolveSettings", "solve:solve"),
    "play": Command("commands:PlaySettings", "play:play"),
    "run": Command("commands:RunSettings", "evaluate:evaluate"),
    "eval": Command("commands:EvalSettings", "evaluate:evaluate"),
    "audit": Command("commands:AuditSettings", "audit:audit"),
    "assets": Command("commands:AssetsSettings", "assets:assets"),
    "prompts": Command("commands:PromptsSettings", "prompts:prompts"),
    "leaderboard": Command("results:LeaderboardSettings", "leaderboard:leaderboard"),
    "episodes": Command("results:EpisodesSettings", "episodes:episodes"),
    "stats": Command("results:StatsSettings", "episodes:stats"),
    "export": Command("results:ExportSettings", "export:export"),
    "publish": Command("results:PublishSettings", "publish:publish"),
    "static-bugs": Command("training:StaticBugsSettings", "static_bugs:write_static_bugs"),
    "train search": Command("training:TrainSearchSettings", "train:train_search"),
    "train selfplay": Command("training:TrainSelfPlaySettings", "train:train_selfplay"),
    "train sft": Command("training:TrainSftSettings", "train_language:train_on_rows"),
    "train bc": Command("training:TrainBcSettings", "train_language:train_on_rows"),
    "train dpo": Command("training:TrainDpoSettings", "train_language:train_on_rows"),
    "train kto": Command("training:TrainKtoSettings", "train_language:train_on_rows"),
    "train grpo": Command("training:TrainGrpoSettings", "train_language:train_in_environment"),
    "train reinforce": Command("training:TrainReinforceSettings", "train_language:train_in_environment"),
    "report": Command("service:ReportSettings", "report:report"),
    "serve": Command("service:ServeSettings", "serve:serve"),
    "serve token create": Command("service:CreateTokenSettings", "serve:create_token"),
    "serve token list": Command("service:ListTokensSettings", "serve:list_tokens"),
    "serve token revoke": Command("service:RevokeTokenSettings", "serve:revoke_token"),
    "worker": Command("service:WorkerSettings", "worker:worker"),
    "sandbox-server": Command("service:SandboxServerSettings", "sandbox_server:sandbox_server"),
    "store migrate": Command("service:StoreMigrateSettings", "store:migrate"),
    "store check": Command("service:StoreCheckSettings", "store:check"),
    "store gc": Command("service:StoreGcSettings", "store:gc"),
    "store size": Command("service:StoreSizeSettings", "store:size"),
    "plan": Command("capacity:PlanSettings", "plan:plan"),
    "recipe slime": Command("recipes:SlimeRecipeSettings", "recipe:recipe_slime"),
    "recipe verl": Command("recipes:VerlRecipeSettings", "recipe:recipe_verl"),
    "doctor": Command("commands:DoctorSettings", "doctor:doctor"),
    "init": Command("commands:InitSettings", "init:init"),
    "completion": Command("commands:CompletionSettings", "completion:completion"),
}
"""A command of several words is a method of a group of commands."""
_GROUPS = {
    "train": "Train a policy or a model from bugs and episodes.",
    "recipe": "Write what trains a model on a cluster with slime or verl.",
    "serve token": "Create, list and revoke the tokens of the service.",
    "store": "Share a store's results through a database, check them, and remove what is not needed.",
}


def _commands(argv: Sequence[str]) -> Mapping[str, Command | OwnTrainer]:
    """Return the commands that a command line may name; those of other packages are looked up for `ssr train` alone."""
    return all_commands() if list(argv[:1]) == ["train"] else COMMANDS


def all_commands() -> Mapping[str, Command | OwnTrainer]:
    """Return all commands, with the methods of `ssr train` of other packages."""
    own = {f"train {point.name}": OwnTrainer(point) for point in entry_points(group=TRAINERS)}
    return {**own, **COMMANDS}


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


class Parsed(NamedTuple):
    """A parsed command line."""

    run: Callable[[CommandSettings], int]
    settings: CommandSettings


def parse(argv: Sequence[str]) -> Parsed | None:
    """Return the command of a command line with its settings, or None if the help was printed.

    Raises SettingsError for wrong usage.
    """
    if not argv:
        raise SettingsError(f"a command is missing; choose from {', '.join(COMMANDS)}, or see ssr --help")
    commands = _commands(argv)
    own = _command_of(argv, commands)
    app, leaves = _app_with([own] if own else _listed(argv, commands), commands)
    if own:
        argv = list(_with_dashes(argv, leaves[own]))
    try:
        function, bound, _ = app.parse_args(argv, print_error=False, exit_on_error=False, verbose=False)
    except CycloptsError as error:
        command = f"ssr {own}" if own else "ssr"
        message = " ".join(str(error).split()).rstrip(".")
        if isinstance(error, MissingArgumentError) and error.argument is not None:
            typed = error.keyword or next((t.keyword for t in error.argument.tokens if t.keyword), None)
            message = f"{typed} needs a value" if typed in argv else f"{error.argument.name} is missing"
        elif isinstance(error, UnknownOptionError) and (flag := error.token.keyword):
            # cyclopts also suggests options that are not near.
            options = [leaf for leaf in leaves.get(own, ()) if not leaf.option.is_argument]
            flags = {name for leaf in options for name in (leaf.flag, leaf.dotted) if name}
            message = f"{flag} is not an option{suggestion(flag.lstrip('-'), flags, prefix='--')}"
        elif isinstance(error, UnusedCliTokensError) and error.unused_tokens:
            message = f"{error.unused_tokens[0]!r} is one argument too many"
            if match := _DOTTED.fullmatch(error.unused_tokens[0]):
                message = f"{match[1]} is not a setting"
        raise SettingsError(f"{message}; see {command} --help") from None
    result = function(*bound.args, **bound.kwargs)
    return result if isinstance(result, Parsed) else None


def completion_script(shell: Literal["bash", "fish", "zsh"]) -> str:
    """Return the script that completes the commands in a shell, except those of `serve token`: `serve` is one."""
    return _app_with(_listed((), COMMANDS), COMMANDS)[0].generate_completion(prog_name="ssr", shell=shell)


def _app_with(names: Sequence[str], commands: Mapping[str, Command | OwnTrainer]) -> tuple[App, dict[str, list[Leaf]]]:
    """Return the application with some of its commands, and their options."""
    app = App(
        name="ssr",
        help="Proven bugs from any pytest project, and what its tests miss.",
        version=__version__,
        help_format="plaintext",
        help_formatter="default",
        result_action="return_value",
    )
    for group in sorted(_GROUPS.keys() & {_group_of(name) for name in names}):
        _add_group(app, group)
    return app, {name: _add(app, name, commands[name], list(commands).index(name)) for name in names}


def _command_of(argv: Sequence[str], commands: Iterable[str]) -> str:
    """Return the command of a command line, empty if it asks for a help page of several; raises SettingsError."""
    first, words = argv[0], list(dict.fromkeys(n.partition(" ")[0] for n in commands))
    if first not in (*words, *_WITHOUT_COMMAND):
        raise SettingsError(_not_a_command(first, words, "ssr"))
    group = _typed_group(argv)
    if not group:
        return first if first in words else ""
    methods = [n.rpartition(" ")[2] for n in commands if _group_of(n) == group]
    typed = argv[len(group.split())] if len(argv) > len(group.split()) else ""
    if not typed:
        raise SettingsError(f"a method is missing; choose from {', '.join(methods)}, or see ssr {group} --help")
    if typed in methods:
        return f"{group} {typed}"
    if typed in _WITHOUT_COMMAND:
        return ""
    raise SettingsError(_not_a_command(typed, methods, f"ssr {group}"))


def _group_of(command: str) -> str:
    return command.rpartition(" ")[0]


def _typed_group(argv: Sequence[str]) -> str:
    """Return the group of commands that a command line begins with; empty without a group."""
    return next((group for group in _GROUPS if list(argv[: len(group.split())]) == group.split()), "")


def _listed(argv: Sequence[str], commands: Iterable[str]) -> list[str]:
    """Return the commands of a help page of several."""
    group = _typed_group(argv)
    if group:
        return [name for name in commands if _group_of(name) == group]
    return [name for name in commands if " " not in _group_of(name)]


def _add_group(app: App, group: str) -> None:
    parent = app
    for index, word in enumerate(group.split()):
        path = " ".join(group.split()[: index + 1])
        shown = _GROUPS.get(path, "")
        parent.command(App(name=word, help=shown, help_format="plaintext", help_formatter="default"))
        parent = parent[word]


def _not_a_command(name: str, known: Sequence[str], parent: str) -> str:
    """Return the message about a word that is not a command of `parent`."""
    import difflib

    choices = f"choose from {', '.join(known)}, or see {parent} --help"
    if name.startswith("-"):
        return f"a command comes before {name!r}; {choices}"
    here = command_here(name) if parent == "ssr" else ""
    close = [here] if here else difflib.get_close_matches(name, known, n=1)
    return f"{name!r} is not a command of {parent}; " + (f"did you mean {close[0]}?" if close else choices)


def _add(app: App, name: str, command: Command | OwnTrainer, place: int) -> list[Leaf]:
    """Add a command, and return its options. place: its place in help pages."""
    settings = command.load_settings()
    leaves = list(leaves_of(settings))
    sources = Sources(leaves, lambda: all_keys() | _keys_of(leaves), lambda: _argument_names(leaves))

    def collect(*arguments: Any, **options: Any) -> Parsed:
        positional = (leaf.flag for leaf in leaves if leaf.option.is_argument)
        named = {leaves[int(index.removeprefix("_"))].flag: value for index, value in options.items()}
        values = {**dict(zip(positional, arguments, strict=False)), **named}
        return Parsed(command.load_run(), build(settings, values, sources.origins))

    collect.__signature__ = signature_of(leaves)  # type: ignore[attr-defined]
    collect.__doc__ = settings.__doc__
    *groups, own = name.split()
    parent = app
    for group in groups:
        parent = parent[group]
    parent.command(
        collect,
        name=own,
        help_epilogue=_EPILOGUE.format(settings.example),
        config=[sources],
        sort_key=place,
    )
    return leaves


def all_keys() -> frozenset[str]:
    """Return the keys in files that any command has; the plugin calls it by its entry point `pytest_ssr.settings`."""
    return frozenset[str]().union(*(_keys_of(leaves_of(command.load_settings())) for command in COMMANDS.values()))


def _keys_of(leaves: Iterable[Leaf]) -> frozenset[str]:
    return frozenset(key for leaf in leaves for key in leaf.keys)


def _argument_names(own: Iterable[Leaf]) -> frozenset[str]:
    """Return what the arguments of all commands are called. own: the options of the command that is used."""
    leaves = itertools.chain(own, *(leaves_of(command.load_settings()) for command in COMMANDS.values()))
    return frozenset(name for x in leaves if x.option.is_argument for name in (x.flag, x.option.metavar.lower()))


def _with_dashes(argv: Sequence[str], leaves: Sequence[Leaf]) -> Iterator[str]:
    """Yield the arguments; `solver.tries=200` gets its dashes if it is a dotted option of the command.

    Raises SettingsError for `solver.tires=200` and `player.tries=200`, which would be taken for paths.
    """
    dotted = {leaf.dotted for leaf in leaves if leaf.dotted}
    sections, flags = {name.partition(".")[0] for name in dotted}, {leaf.flag for leaf in leaves}
    for before, argument in itertools.pairwise(("", *argv)):
        match = _DOTTED.fullmatch(argument)
        name = match[1].replace("_", "-") if match else ""
        section, _, last = name.partition(".")
        is_unknown = not name.startswith("-") and name not in dotted and (section in sections or last in flags)
        # Behind an option it may be its value.
        if is_unknown and not before.startswith("-") and not os.path.exists(argument):
            raise SettingsError(f"{name} is not a setting{suggestion(name, dotted)}")
        yield f"--{argument}" if name in dotted else argument
