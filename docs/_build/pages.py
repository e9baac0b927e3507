"""Pages of the site that are made from other files: notebooks, the changelog and the help of the commands."""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parent.parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages. Notebooks are pages, not files to download."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            made = notebook_page(json.loads(Path(str(file.abs_src_path)).read_text(encoding="utf-8")))
            files.append(File.generated(config, f"{file.src_uri.removesuffix('.ipynb')}.md", content=made))
    changelog = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    changelog = re.sub(r"\]\(README\.md[^)]*\)", "](index.md)", changelog)
    files.append(File.generated(config, "changelog.md", content=changelog))
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to files outside the site at their pages."""
    return markdown.replace("](../CHANGELOG.md)", "](changelog.md)")


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as Markdown: its texts, and its code in blocks."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def commands_page() -> str:
    """Return the help pages of all commands."""
    import typer
    from typer.testing import CliRunner

    from fairsync.cli import app

    def walk(command: Any, path: tuple[str, ...]) -> list[str]:
        shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
        text = re.sub(r" +$", "", shown.stdout.strip("\n"), flags=re.MULTILINE)
        context = typer.Context(command)
        names = command.list_commands(context) if hasattr(command, "commands") else []
        below = [part for name in names for part in walk(command.get_command(context, name), (*path, name))]
        return [f"## {' '.join(('fairsync', *path))}\n\n```text\n{text}\n```\n", *below]

    return "# Commands\n\n" + "\n".join(walk(typer.main.get_command(app), ()))
