"""The tasks of a developer: ``nox -s test``, ``lint``, ``types``, ``web``, ``build`` and ``docs``."""

from __future__ import annotations

from pathlib import Path

import nox  # pyright: ignore[reportMissingImports]

nox.options.sessions = ["lint", "types", "test"]
nox.options.reuse_existing_virtualenvs = True
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PAGES = ["tests/docs", "tests/test_readme.py", "tests/test_faults_page.py", "tests/protocol/test_docs.py"]


def install(session: nox.Session) -> None:
    """Install the package with all that its checks need, in the versions that are known to pass."""
    session.install("-c", "constraints.txt", "-e", ".[dev]")


@nox.session(python=PYTHONS)
def test(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest."""
    install(session)
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    install(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    install(session)
    session.run("pyright", "--threads", "2")


@nox.session
def web(session: nox.Session) -> None:
    """Check the scripts and styles of the explorer's pages."""
    session.run(".ci/web", external=True)


@nox.session
def build(session: nox.Session) -> None:
    """Build the wheel and the source archive, install the wheel, and run it."""
    session.install("build")
    session.run("python", "-m", "build", "--outdir", "dist")
    wheel = max(Path("dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    session.install("-c", "constraints.txt", f"bactrian[local] @ {wheel.resolve().as_uri()}")
    session.run("bactrian", "--version")


@nox.session
def docs(session: nox.Session) -> None:
    """Check that what the pages say is true, and build them as a site."""
    install(session)
    session.run("python", "tools/build_site.py")
    session.run("pytest", *PAGES, *map(str, Path("tests").rglob("test_*_page.py")))
