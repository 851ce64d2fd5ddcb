"""Command lines of tests: options are keywords."""

from typer.testing import CliRunner

from impact_gnn.cli import app


def words_of(*arguments, **options):
    """The words of a command line; `mean_degree=5` is `--mean-degree 5`, `verbose=True` a flag."""
    words = [str(argument) for argument in arguments]
    for name, value in options.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    return words


def here(*arguments, **options):
    """The result of a command in this process, which is faster: a new one imports torch again."""
    done = CliRunner().invoke(app, words_of(*arguments, **options))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done
