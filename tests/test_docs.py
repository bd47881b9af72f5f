"""Every command that README and docs/ tell people to run exists, and the settings in it compose and hold."""

import importlib.util
import re
import shlex

import pytest
import yaml

from ninegrid.params import compose
from ninegrid.settings import validate
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
PLACEHOLDER = re.compile(r"\b(NAME|KEY|VALUE|EXPERIMENT|HOST|PORT|N|FOLDER|URL|my_agent)\b")


def commands(start):
    """Page and words of each command that begins so, in code blocks, tables and running text."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
        inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for line in [*(line for block in blocks for line in block.splitlines()), *inline]:
            for part in re.split(r"&&|;", line):
                if re.match(rf"\s*{start}\b", part):
                    found.append((page.name, part.split(" #")[0].strip()))
    return list(dict.fromkeys(found))


def overrides_in(command):
    return [word for word in shlex.split(command) if re.match(r"[+~]*[\w./@]+=", word)]


@pytest.mark.parametrize(("page", "command"), commands("python -m ninegrid.params"))
def test_settings_compose_and_hold(page, command):
    if PLACEHOLDER.search(command):
        pytest.skip("stands for a name of the reader's own")
    validate(compose(overrides_in(command)))


@pytest.mark.parametrize(("page", "command"), commands(r"python -m (stages|ninegrid|benchmarks)"))
def test_modules_exist(page, command):
    module = command.split()[2]
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"{page}: {command}"
    if spec.submodule_search_locations:  # a package runs by its __main__
        assert importlib.util.find_spec(f"{module}.__main__") is not None, f"{page}: {command}"


@pytest.mark.parametrize(("page", "command"), commands("make"))
def test_targets_exist(page, command):
    _, *words = shlex.split(command)
    targets = [word for word in words if re.fullmatch("[a-z]+", word)]
    assert set(targets) <= TARGETS, f"{page}: {command}"


def test_compose_commands_name_services():
    services = yaml.safe_load((ROOT / ".docker" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    told = commands("docker compose")
    assert len(told) >= 3
    for page, command in told:
        words = shlex.split(command)
        assert (ROOT / words[words.index("-f") + 1]).is_file(), f"{page}: {command}"
        if "run" in words:
            rest = [w for w in words[words.index("run") + 1 :] if w not in ("--rm", "--name", "published")]
            service, target, *settings = rest
            assert service in services and target in TARGETS, f"{page}: {command}"
            for word in settings:
                assert word.startswith("PARAMS=")
                validate(compose([word.removeprefix("PARAMS=")]))


def test_files_that_the_docs_name_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not re.match(r"https?:", target):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_curves_that_the_guide_reads_exist():
    guide = (ROOT / "docs" / "ling-dgx-spark.md").read_text(encoding="utf-8")
    told = re.findall(r"`((?:rollout|train|memory)/[\w/]+)`", guide)
    assert len(told) > 10
    sources = [ROOT / "ninegrid" / "gspo" / "health.py", ROOT / "ninegrid" / "tracking" / "usage.py"]
    written = "".join(path.read_text(encoding="utf-8") for path in sources)
    for name in told:
        family = name.rpartition("/")[0] + "/{"  # such as rollout/outcome/{name}
        assert f'"{name}"' in written or family in written, name
