"""The snippets of the README and of CONTRIBUTING run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


def test_the_readme_has_its_five_snippets():
    assert len(SNIPPETS) == 5


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(SNIPPETS[number], f"README.md snippet {number}", "exec"), {})


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md",
                                  "docs/differences.md"])
def test_links_and_named_files_exist(page):
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#]+)\)", text)
    paths = re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|md))`", text)
    for name in {*links, *paths} - {"..."}:
        places = (ROOT / name, (ROOT / page).parent / name, ROOT / "minitorch_gpu" / name)
        assert any(p.exists() for p in places), f"{page} names {name}"
