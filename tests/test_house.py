"""House rules of CONTRIBUTING as executable tests. Files are parsed, never imported."""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = sorted((ROOT / "zmqdata").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
KIT = sorted((ROOT / "tests" / "kit").rglob("*.py"))
"""The simulator, whose form is that of the package."""
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
SHELLS = {"client", "cluster", "dispatcher", "testing", "transport", "worker"}
ADAPTERS = {"jax", "keras", "tensorflow", "torch"}
"""Packages that speak the language of a framework, whose generators they draw from."""
SHELLS |= ADAPTERS
PURE = [path for path in PACKAGE if path.relative_to(ROOT / "zmqdata").parts[0] not in SHELLS]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FUTURE = "from __future__ import annotations"
BANNED_WORDS = {"manager", "helper", "helpers", "util", "utils", "misc", "common", "info"}
BANNED_NAMES = {"data"}
# Words for which the design has another word, and which have no second meaning.
FOREIGN_WORDS = {
    "session": "job",
    "epoch": "iteration",
    "trainer": "client, or consumer",
    "frontend": "client",
    "master": "dispatcher",
    "scheduler": "dispatcher",
    "broker": "dispatcher",
    "packet": "block",
    "barrier": "view",
    "generation": "attempt",
    "ping": "heartbeat",
    "wal": "journal",
    "crumb": "work, or watch",
    "timeline": "trace",
}
FOREIGN_NAMES = {"pipe": "stream", "channel": "stream", "op": "node"}
OF_OTHERS = re.compile(r"cross_?trainer|trainer_?id|^on_epoch_(begin|end)$", re.IGNORECASE)
"""Words of tf.data, and methods that Keras calls."""
GENERATORS = {
    "Generator",
    "default_rng",
    "Random",
    "RandomState",
    "Philox",
    "PCG64",
    "SeedSequence",
}
OPERATIONS = ROOT / "zmqdata" / "operations"
LONGEST = {"module": 420, "class": 370, "function": 75}
"""Maximum number of code lines, of 100 columns each."""


SMALLEST = 80
# Small modules with a single importer, each with the reason why it stands alone.
SMALL = {
    "zmqdata.blocks.raggeds": "a kind of element, as each module beside it",
    "zmqdata.cli.save_progress": "the only code that needs the bars of rich",
    "zmqdata.core.dispatcher.tasks.detours": "a feature, under its name in every wing",
    "zmqdata.core.dispatcher.state.trace": "a subject of its own among what is known",
    "zmqdata.hosts.local": "a host, as each module beside it",
    "zmqdata.messages.diagnosis": "a family of messages, as each module beside it",
    "zmqdata.transport.clocks": "the only code that reads the clock of a suspended machine",
    "zmqdata.worker.answers": "the answers of a server, as in the dispatcher's folder",
    "zmqdata.worker.processes.keylending": "the only code that hands a key to a child",
    "zmqdata.worker.tasks.events": "the order of a runner's events is a subject of its own",
}
# Siblings with similar names and different meanings, each with its reason.
ALIKE: set[str] = set()
IRREGULAR = {
    "began": "begin",
    "begun": "begin",
    "broke": "break",
    "broken": "break",
    "chose": "choose",
    "chosen": "choose",
    "dealt": "deal",
    "given": "give",
    "held": "hold",
    "kept": "keep",
    "known": "know",
    "left": "leave",
    "lent": "lend",
    "lost": "lose",
    "made": "make",
    "said": "say",
    "sent": "send",
    "taken": "take",
    "told": "tell",
    "took": "take",
    "written": "write",
    "wrote": "write",
}


def word_stem(word: str) -> str:
    """Return the part of a module name's word that is independent of number and tense.
    The rules are for English words.
    """
    stem = IRREGULAR.get(word, word)
    stem = re.sub(r"(?<=\w{2})(ies|ied)$", "y", stem)
    stem = re.sub(r"(?<=\w{2})(ings|ing|ed|es|s|e)$", "", stem)
    return re.sub(r"([b-df-hj-np-tv-z])\1$", r"\1", stem)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of a module."""
    return tuple(ast.walk(tree_of(path)))


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """Stop the garbage collector during these tests, and discard the parsed trees after
    them. Traversing their million nodes again and again takes three times as long as
    parsing.
    """
    gc.disable()
    try:
        yield
    finally:
        for cached in (tree_of, walked, code_lines):
            cached.cache_clear()
        gc.enable()


@cache
def code_lines(path: Path) -> frozenset[int]:
    """Return the numbers of the lines with code."""
    told = {
        line
        for node in walked(path)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = path.read_text(encoding="utf-8").splitlines()
    coded = {at for at, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"}
    texts = (one for one in walked(path) if isinstance(one, ast.Constant | ast.JoinedStr))
    for text in texts:  # a blank line or a "#" within a text is code
        coded.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return frozenset(coded - told)


def place(path: Path, node: ast.AST | None = None) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def nodes(paths: list[Path], *kinds: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    return ((path, node) for path in paths for node in walked(path) if isinstance(node, kinds))


def called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def is_skip(node: ast.expr) -> bool:
    return bool(re.fullmatch(r"(pytest|(pytest\.)?mark)\.(skip|skipif|xfail)", ast.unparse(node)))


def defined_names(path: Path) -> Iterator[tuple[str, ast.AST]]:
    for node in walked(path):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.arg):
            yield node.arg, node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


@cache
def is_banned(name: str) -> bool:
    return name in BANNED_NAMES or not BANNED_WORDS.isdisjoint(words(name))


@cache
def foreign_words(name: str) -> set[str]:
    """Return the words in a name for which the project has another word. Names from
    tf.data and Keras are allowed.
    """
    said = {
        word.removesuffix("s") for word in words(OF_OTHERS.sub("", name))
    } & FOREIGN_WORDS.keys()
    return said | ({name.strip("_").lower()} & FOREIGN_NAMES.keys())


def is_verb_process(node: ast.AST) -> bool:
    """Return True for a function, not a variable, whose name begins with ``process``. A
    variable may hold a process, but as a verb the word says nothing.
    """
    return isinstance(node, FUNCTIONS) and words(node.name)[:1] == ["process"]


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def test_each_module_says_what_lives_in_it() -> None:
    """Every module opens with a docstring."""
    assert [
        place(path) for path in PACKAGE + TESTS + EXAMPLES if not ast.get_docstring(tree_of(path))
    ] == []


def test_hints_are_never_evaluated_at_import() -> None:
    """Every module with code defers annotations, to allow new syntax on Python 3.10."""
    coded = [path for path in PACKAGE + TESTS + EXAMPLES if len(tree_of(path).body) > 1]
    assert [place(path) for path in coded if FUTURE not in path.read_text(encoding="utf-8")] == []


def test_nothing_grows_too_long() -> None:
    """No module, class or function has more lines of code than its limit; docstrings,
    comments and empty lines are free.
    """
    long = []
    for path in PACKAGE + KIT:
        spans = [("module", "", range(1, len(path.read_text(encoding="utf-8").splitlines()) + 1))]
        spans += [
            (
                "class" if isinstance(node, ast.ClassDef) else "function",
                node.name,
                range(node.lineno, (node.end_lineno or node.lineno) + 1),
            )
            for node in walked(path)
            if isinstance(node, (*FUNCTIONS, ast.ClassDef))
        ]
        for kind, name, lines in spans:
            # Counting lines of code is slow, so only candidates are counted.
            if len(lines) > LONGEST[kind]:
                coded = len(code_lines(path).intersection(lines))
                if coded > LONGEST[kind]:
                    long.append(f"{place(path)} {name} {coded} lines at {lines.start}")
    assert long == []


def test_no_folder_holds_too_many_modules() -> None:
    """No folder of the package or the simulator has over 25 modules, except
    ``operations``, and ``core`` has at most 8 of its own.
    """
    limits = {"core": 8}
    full = []
    for folder in {path.parent for path in PACKAGE + KIT} - {OPERATIONS}:
        modules = [path for path in folder.glob("*.py") if not path.name.startswith("__")]
        if len(modules) > limits.get(folder.name, 25):
            full.append(f"{folder.relative_to(ROOT)}: {len(modules)} modules")
    assert full == []


def test_each_module_of_operations_is_a_family() -> None:
    """The folder of operations has one module for each family, whose iterators it
    registers, the analysis of static sharding, how ``balance`` deals, and how ``pack``
    places.
    """
    other = {
        path.stem
        for path in OPERATIONS.glob("*.py")
        if "@make_iterator.register" not in path.read_text(encoding="utf-8")
    }
    assert other == {"__init__", "sharding", "balance_plan", "pack_plan"}


def test_each_class_has_a_name_of_its_own() -> None:
    """No two classes of the package and the simulator have the same name."""
    found: dict[str, list[str]] = {}
    for path, node in nodes(PACKAGE + KIT, ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        found.setdefault(node.name, []).append(place(path, node))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def alike_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of names with the same stem."""
    stems: dict[str, str] = {}
    pairs = ((stems.setdefault(word_stem(name), name), name) for name in sorted(names))
    return [(other, name) for other, name in pairs if other != name]


def test_no_module_name_needs_its_neighbour() -> None:
    """No two modules or folders within a folder differ only in number or tense, as
    `ending` and `endings`.
    """
    alike = []
    for folder in {path.parent for path in PACKAGE}:
        beside = {path.stem for path in folder.glob("*.py")}
        beside |= {path.parent.name for path in folder.glob("*/__init__.py")}
        alike += [f"{folder.relative_to(ROOT)}: {pair}" for pair in alike_names(beside - ALIKE)]
    assert alike == []


def test_word_stems() -> None:
    """Number and tense do not change the stem of a word."""
    assert len({word_stem(word) for word in ("ending", "endings", "ended", "ends", "end")}) == 1
    assert word_stem("hosted") == word_stem("hosting") == word_stem("hosts")
    assert word_stem("writing") == word_stem("written") == word_stem("write")
    assert word_stem("splits") == word_stem("splitting") == word_stem("split")
    assert word_stem("lease") == word_stem("leases")
    assert word_stem("links") != word_stem("lineage")
    assert word_stem("entries") == word_stem("entry")
    assert word_stem("series") != word_stem("serving")
    for word, form in IRREGULAR.items():
        assert word_stem(word) == word_stem(form) == word_stem(f"{form.removesuffix('e')}ing")
    assert alike_names(["chosen", "keys", "choosing", "held"]) == [("choosing", "chosen")]
    assert alike_names(["tasks", "task", "tasklists"]) == [("task", "tasks")]


def imported_names(found: Iterable[ast.AST]) -> set[str]:
    """Return the dotted names in import statements, as modules or from modules."""
    names = set()
    for node in found:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def lonely_modules(lengths: dict[str, int], imports: dict[str, set[str]]) -> set[str]:
    """Return the names of the small modules that at most one other imports.

    Args:
        lengths: number of lines of each module.
        imports: the names that each module imports.
    """
    counts = Counter(name for names in imports.values() for name in names)
    return {name for name in lengths if lengths[name] < SMALLEST and counts[name] < 2}


def test_a_small_module_has_several_importers() -> None:
    """A module of less than 80 lines with a single importer belongs into it. ``SMALL``
    lists exactly the exceptions, with their reasons.
    """
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in PACKAGE}
    lonely = lonely_modules(
        {
            name: len(path.read_text(encoding="utf-8").splitlines())
            for name, path in paths.items()
            if not path.name.startswith("__")
        },
        {name: imported_names(walked(path)) for name, path in paths.items()},
    )
    assert lonely - SMALL.keys() == set(), "belongs into its importer"
    assert SMALL.keys() - lonely == set(), "has grown, or has several importers"


def test_lonely_modules() -> None:
    """Small modules with fewer than two importers are found, in any form of import."""
    code = {"a.one": "import a.both", "a.two": "from a import both, lone, large"}
    imports = {name: imported_names(ast.walk(ast.parse(text))) for name, text in code.items()}
    lengths = {"a.one": 1, "a.both": 1, "a.lone": 79, "a.large": 80}
    assert lonely_modules(lengths, imports) == {"a.one", "a.lone"}


FACADES = ("blocks", "dataset", "messages")
"""Packages that export what their ``__init__`` imports."""


def exported_names(found: Iterable[ast.AST]) -> set[str]:
    """Return the names that an ``__init__`` imports from modules of zmqdata. Modules
    that it only loads are not among them.
    """
    return {
        alias.name
        for node in found
        if isinstance(node, ast.ImportFrom) and str(node.module).count(".") == 2
        for alias in node.names
    }


def foreign_names(found: Iterable[ast.AST]) -> set[str]:
    """Return the names that a module imports from other packages than zmqdata."""
    return {
        alias.asname or alias.name
        for node in found
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if not str(getattr(node, "module", alias.name)).startswith(("zmqdata", "__future__"))
    }


def names_taken(facade: str, found: Iterable[ast.AST]) -> set[str]:
    """Return the names that a module imports from a facade or reads as attributes of
    it.
    """
    nodes = list(found)
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    taken = {
        alias.name for node in imports if node.module == f"zmqdata.{facade}" for alias in node.names
    }
    called = {
        alias.asname or alias.name
        for node in imports
        if node.module == "zmqdata"
        for alias in node.names
        if alias.name == facade
    }
    return taken | {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in called
    }


def test_every_export_of_a_facade_is_used() -> None:
    """No facade exports a name that no other module takes from it, or imports a name of
    another package that it does not use.
    """
    for facade in FACADES:
        init = ROOT / "zmqdata" / facade / "__init__.py"
        exported = exported_names(walked(init))
        used: set[str] = set()
        for path in PACKAGE + TESTS + EXAMPLES + BENCHMARKS:
            if path != init:
                used |= names_taken(facade, walked(path))
        own = {node.id for node in walked(init) if isinstance(node, ast.Name)}
        foreign = foreign_names(walked(init))
        assert exported
        assert exported - used == set(), f"exported by {facade} for nobody"
        assert foreign - own == set(), f"imported by {facade} for nothing"


def test_names_taken() -> None:
    """Imports from a facade and attributes of it are found under any name of it."""
    text = "from zmqdata.nodes import Map\nfrom zmqdata import nodes as n\nn.Take(m.Skip, n.a.b)"
    assert names_taken("nodes", ast.walk(ast.parse(text))) == {"Map", "Take", "a"}
    loads = "from zmqdata.nodes import base\nfrom zmqdata.nodes.base import Node\nimport os"
    assert exported_names(ast.walk(ast.parse(loads))) == {"Node"}
    assert foreign_names(ast.walk(ast.parse(f"{loads}\nfrom typing import Any"))) == {"os", "Any"}


def docstrings(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each docstring of a module, class or function."""
    for path, node in nodes(paths, ast.Module, ast.ClassDef, *FUNCTIONS):
        text = ast.get_docstring(node)  # type: ignore[arg-type]
        if text:
            yield place(path, node), text


def field_docstrings(found: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Yield each string that follows an assignment, with its text."""
    for node in found:
        body = getattr(node, "body", ())
        for field, told in pairwise(body if isinstance(body, list) else ()):
            text = told.value if isinstance(told, ast.Expr) else None
            is_field = isinstance(field, (ast.Assign, ast.AnnAssign))
            if is_field and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield told, text.value


BEGINS = re.compile(r"(Where|Who|Which|What|How|Of|By|With|In place of)\b")


def test_a_docstring_is_understood_without_the_name() -> None:
    """No docstring of a module, class, function or field begins with a relative clause
    or a preposition.
    """
    everywhere = [ROOT / "tools", ROOT / "docs"]
    paths = PACKAGE + TESTS + EXAMPLES + BENCHMARKS
    paths += [path for folder in everywhere for path in sorted(folder.rglob("*.py"))]
    told = list(docstrings(paths))
    told += [
        (place(path, node), text) for path in paths for node, text in field_docstrings(walked(path))
    ]
    assert [f"{where} {text[:60]}" for where, text in told if BEGINS.match(text)] == []


def test_fields_have_docstrings() -> None:
    """The string under a field of a class or module is found, and no other string."""
    code = 'one: int = 1\n"""With it."""\nprint()\n\'text\'\nclass A:\n    b = 2\n    \'Its b.\'\n'
    assert [text for _, text in field_docstrings(ast.walk(ast.parse(code)))] == [
        "With it.",
        "Its b.",
    ]
    assert [bool(BEGINS.match(text)) for text in ("With it.", "Without it.")] == [True, False]


def test_docstrings_name_their_actors() -> None:
    """Less than 4 of 1,000 words of docstrings are pronouns that hide who acts."""
    texts = " ".join(text for _, text in docstrings(PACKAGE))
    pale = re.findall(r"\b(one|those|nobody|somebody|whoever)\b", texts, re.IGNORECASE)
    assert len(pale) / len(re.findall(r"[A-Za-z']+", texts)) < 0.004


def named_sources(text: str) -> tuple[set[str], set[str]]:
    """Return the decisions and the clauses of the protocol in the last paragraph of a
    docstring. A range of clauses counts as all clauses in it.
    """
    last = " ".join(text.strip().split("\n\n")[-1].split())
    told = re.search(r"\bdecisions?((?:,? (?:and )?\d{4})+)", last, re.IGNORECASE)
    decisions = set(re.findall(r"\d{4}", told[1])) if told else set()
    clauses = set()
    if told := re.search(r"\bprotocol (.*)", last, re.IGNORECASE):
        for first, end in re.findall(r"(\d+(?:\.\d+[a-z]?)?)(?: to (\d+\.\d+))?", told[1]):
            chapter, _, number = first.partition(".")
            if not end:
                clauses.add(first)
                continue
            until = int(end.removeprefix(f"{chapter}."))
            clauses |= {f"{chapter}.{at}" for at in range(int(number), until + 1)}
    return decisions, clauses


def clauses_of(page: str) -> set[str]:
    """Return the numbers of the chapters and clauses of the protocol."""
    return set(re.findall(r"(?m)^(?:#+ )?(\d+(?:\.\d+[a-z]?)?)\. ", page))


def test_each_module_of_a_decider_names_its_decision_or_clauses() -> None:
    """The docstring of each module of ``core`` ends with its decisions and the clauses
    of the protocol that it implements, all of which exist, or the page of the design.
    """
    pages = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    known = clauses_of(read("docs/protocol.md"))
    silent = []
    for path in (ROOT / "zmqdata" / "core").rglob("*.py"):
        if path.name in {"__init__.py", "events.py"}:
            continue
        text = ast.get_docstring(tree_of(path)) or ""
        decisions, clauses = named_sources(text)
        absent = (decisions - pages) | (clauses - known)
        if absent or not (decisions or clauses or "the page on the design." in text[-60:]):
            silent.append(f"{place(path)} {sorted(absent)} {text[-60:]}")
    assert silent == []


def test_no_text_of_the_package_names_a_page_by_its_path() -> None:
    """An installation has no pages, so no docstring or message names the path of
    one.
    """
    named = {
        place(path, node): node.value
        for path, node in nodes(PACKAGE, ast.Constant)
        if isinstance(node.value, str) and re.search(r"\w\.md\b", node.value)  # type: ignore[attr-defined]  # narrowed
    }
    assert named == {}


def test_named_decisions_and_clauses() -> None:
    """Numbers of decisions and clauses are read from the last paragraph only, and
    ranges of clauses are complete.
    """
    text = "Decision 1111.\n\nDecisions 0004, 0012 and 0013; protocol 4.6a, 5.9 to 5.11 and 9."
    assert named_sources(text) == (
        {"0004", "0012", "0013"},
        {"4.6a", "5.9", "5.10", "5.11", "9"},
    )
    assert named_sources("See protocol 3.1.\n\nNothing.") == (set(), set())
    page = "## 5. Splits\n\n5.1. A task has a ledger,\n12 entries long.\n\n5.1a. And\n\n5.10. It ends.\n"
    assert clauses_of(page) == {"5", "5.1", "5.1a", "5.10"}


def test_names_keep_to_the_vocabulary() -> None:
    """No name contains manager, helper, util, misc, common or info, is just data, or
    has process as its verb.
    """
    said = [
        place(path)
        for path in PACKAGE
        if any(map(is_banned, path.relative_to(ROOT).with_suffix("").parts))
    ]
    for path in PACKAGE:
        bad = [
            (name, node)
            for name, node in defined_names(path)
            if is_banned(name) or is_verb_process(node)
        ]
        said += [f"{place(path, node)} {name}" for name, node in bad]
    assert said == []


def test_one_concept_has_one_word() -> None:
    """No name in package, tests and benchmarks uses a word that the design replaces."""
    said = []
    for path in PACKAGE + TESTS + BENCHMARKS:
        if (ADAPTERS | {"pytorch"}) & {*path.relative_to(ROOT).with_suffix("").parts}:
            continue
        names = [
            *((part, None) for part in path.relative_to(ROOT).with_suffix("").parts),
            *defined_names(path),
        ]
        for name, node in names:
            for word in foreign_words(name):
                instead = FOREIGN_WORDS.get(word) or FOREIGN_NAMES[word]
                said.append(f"{place(path, node)} {name}: instead of {word} say {instead}")
    assert said == []


def test_foreign_words_are_found() -> None:
    """Foreign words are found anywhere in a name and in the plural, but not inside
    words.
    """
    assert foreign_words("SimulatedTrainers") == {"trainer"}
    assert foreign_words("_SESSION_ID") == {"session"}
    assert foreign_words("pipe") == {"pipe"}
    ours = ("CrossTrainerCache", "cross_trainer_cache", "trainer_id")
    assert [foreign_words(name) for name in ours] == [set(), set(), set()]
    assert foreign_words("shipping_pipeline_walk") == set()


def test_each_test_states_its_fact() -> None:
    """Every test function has a docstring of a single paragraph."""
    silent = []
    for path, node in nodes(TESTS, *FUNCTIONS):
        assert isinstance(node, FUNCTIONS)
        fact = ast.get_docstring(node) or "\n\n"
        if node.name.startswith("test_") and "\n\n" in fact:
            silent.append(f"{place(path, node)} {node.name}")
    assert silent == []


def test_no_test_waits_by_the_clock() -> None:
    """No test sleeps, and no program in a test does. A test awaits a condition with a
    deadline or moves its own clock.
    """
    pause = re.compile(r"\b[s]leep\b")  # in brackets, so that this line does not match
    lines = (
        (path, line) for path in TESTS for line in path.read_text(encoding="utf-8").splitlines()
    )
    assert [f"{place(path)} {line}" for path, line in lines if pause.search(line)] == []


def test_no_test_is_left_out_in_silence() -> None:
    """Every skip and expected failure gives its reason."""
    silent = []
    called = {node.func for _, node in nodes(TESTS, ast.Call) if isinstance(node, ast.Call)}
    for path, node in nodes(TESTS, ast.Call, ast.Attribute):
        if isinstance(node, ast.Attribute) and node not in called and is_skip(node):
            silent.append(place(path, node))
        elif isinstance(node, ast.Call) and is_skip(node.func):
            stated = {word.arg for word in node.keywords} & {"reason", "msg"}
            if not stated and (called_name(node) == "skipif" or not node.args):
                silent.append(place(path, node))
    assert silent == []


def test_nothing_is_hidden_from_the_type_checker_without_a_reason() -> None:
    """Each ``type: ignore`` of the package has its code and the reason why the checker
    is wrong.
    """
    reasoned = re.compile(r"# type: ignore\[[a-z, -]+\]  # \w")
    lines = [
        (path, line) for path in PACKAGE for line in path.read_text(encoding="utf-8").splitlines()
    ]
    hidden = [(path, line) for path, line in lines if "type: ignore" in line]
    assert [f"{place(path)} {line}" for path, line in hidden if not reasoned.search(line)] == []


def test_no_security_rule_is_set_aside_without_a_reason() -> None:
    """Each ``noqa`` of a security rule has a reason."""
    lines = [
        (path, line) for path in PACKAGE for line in path.read_text(encoding="utf-8").splitlines()
    ]
    aside = [(path, line) for path, line in lines if re.search(r"# noqa: S[0-9]", line)]
    assert [
        f"{place(path)} {line}"
        for path, line in aside
        if not re.search(r"# noqa: S[0-9]+ - \w", line)
    ] == []


def test_randomness_is_always_seeded_in_pure_modules() -> None:
    """Pure modules use only seeded generators, so that a replay gives equal results."""
    calls = [(path, node) for path, node in nodes(PURE, ast.Call) if isinstance(node, ast.Call)]
    unseeded = [
        (path, call)
        for path, call in calls
        if called_name(call) in GENERATORS and not (call.args or call.keywords)
    ]
    of_module = [
        (path, call)
        for path, call in calls
        if isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) in {"random", "np.random", "numpy.random"}
        and call.func.attr not in GENERATORS
    ]
    assert [place(*found) for found in unseeded + of_module] == []


def test_pipelines_are_opened_by_workers_only() -> None:
    """Only the worker package and the defining package name ``open_pipeline``."""
    openers = {path for path in PACKAGE if "open_pipeline" in path.read_text(encoding="utf-8")}
    assert {path.relative_to(ROOT).parts[1] for path in openers} <= {
        "pipelines",
        "worker",
        "testing",
    }


# Functions of the language that take any number of alike arguments.
VARIADIC = {"zip", "union"}


def unpacked_tuples(tree: ast.AST, own: frozenset[str] = frozenset()) -> Iterator[ast.Call]:
    """Return calls that unpack anything but the extra arguments of the calling function
    or the key of a task.
    """
    for node in ast.iter_child_nodes(tree):
        known = own
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            extra = frozenset({node.args.vararg.arg} if node.args.vararg else ())
            known = extra | own if isinstance(node, ast.Lambda) else extra
        if isinstance(node, ast.Call) and called_name(node) not in VARIADIC:
            starred = [one.value for one in node.args if isinstance(one, ast.Starred)]
            keys = [one for one in starred if getattr(one, "attr", "") in {"key", "_key"}]
            names = [one for one in starred if getattr(one, "id", None) in known]
            if len(keys) + len(names) < len(starred):
                yield node
        yield from unpacked_tuples(node, known)


def test_no_code_looks_at_the_stacks_of_other_threads() -> None:
    """``sys._current_frames`` stands nowhere in the package. A thread frees its frames
    while another one looks at them, and the process dies of SIGSEGV.
    """
    found = [path for path in PACKAGE if "_current_frames" in path.read_text(encoding="utf-8")]
    assert found == []


def test_arguments_are_named_at_the_call() -> None:
    """Deciders and shells unpack only their extra arguments or a task's key into a
    call.
    """
    roles = [path for path in PACKAGE if {"core", "worker", "client", "dispatcher"} & {*path.parts}]
    assert [place(path, call) for path in roles for call in unpacked_tuples(tree_of(path))] == []


def test_unpacked_tuples() -> None:
    """A call that unpacks a result, a subscript, a local name or a parameter is found,
    and so is one in a function whose extra arguments have another name.
    """
    bad = ("f(*g())", "f(*a[0])", "f(*key)", "f(1, *rest)", "f(*one, *more)")
    for call in bad:
        tree = ast.parse(f"def h(key, rest, *more):\n    {call}")
        assert [ast.unparse(one) for one in unpacked_tuples(tree)] == [call]
    good = ("f(*more)", "f(*task.key, 1)", "g(lambda: f(*more))", "zip(*rest)", "f(*self._key)")
    for call in good:
        tree = ast.parse(f"def h(key, rest, *more):\n    {call}")
        assert list(unpacked_tuples(tree)) == []


# Doors through which something passes that has no type, each with the reason. A key is
# a module, or a function of it.
UNTYPED_DOORS = {
    "client/auto_placement.py::restore": "the state of an iterator, as the user saved it",
    "client/auto_placement.py::state": "the state of an iterator, for the user to save",
    "client/decoding.py::check_spec_without_objects": "an element spec is any structure",
    "client/distribute.py::check_of_elements": "an element of the user",
    "client/distribute.py::spec": "an element spec is any structure",
    "client/iterator.py::_check": "an element of the user",
    "client/iterator.py::_next_block": "an element of the user",
    "client/iterator.py::restore": "the state of an iterator, as the user saved it",
    "client/options.py": "checks what a user gave as an argument",
    "client/registration.py::_decoded": "an element spec is any structure",
    "client/registration.py::agreed_spec": "an element spec is any structure",
    "client/registration.py::check_declared": "an element of the user",
    "client/registration.py::registration_of": "modules, in the forms that the user may give",
    "client/registration.py::spec_without_running": "an element spec is any structure",
    "client/repetitions.py::_decoded": "the state of an iterator, as the user saved it",
    "client/repetitions.py::resumed": "the state of an iterator, as the user saved it",
    "client/runs.py::_torch_group": "a module of a package that may be absent",
    "client/saving.py::_check_text": "checks what a user gave as an argument",
    "core/client/coordinated.py::_arrived": "a block as the shell received it",
    "core/client/coordinated.py::store": "a block as the shell received it",
    "core/client/order.py::add": "a block as the shell received it",
    "core/client/tasks.py::_arrived": "a block as the shell received it",
    "core/client/tasks.py::_deliver": "a block as the shell received it",
    "core/client/tasks.py::store": "a block as the shell received it",
    "core/dispatcher/datasets.py::_spec": "an element spec is any structure",
    "core/dispatcher/state/state.py::_APPLY": "decision 0032: compared with the union",
    "core/events.py::Carriers": "decision 0032: its method `on` is typed",
    "core/events.py::Handlers": "decision 0032: its method `on` is typed",
    "core/events.py::PeerHandlers": "decision 0032: its method `on` is typed",
    "core/worker/distribution.py::_push": "frames of a block as the runner encoded them",
    "core/worker/links.py::_push": "frames of a block as the runner encoded them",
    "core/worker/links.py::push": "frames of a block as the runner encoded them",
    "worker/chunks.py::_merge": "an element spec is any structure",
    "worker/chunks.py::add": "frames of a block as the runner encoded them",
    "worker/links.py::_message": "frames of a block as the runner encoded them",
    "worker/tasks/ledger.py::_marked": "the state of an iterator",
    "worker/tasks/ledger.py::decisions_needed": "the state of an iterator",
    "worker/tasks/ledger.py::needs_of": "the state of an iterator",
    "worker/tasks/output.py::_begin_block": "an element of the user",
    "worker/tasks/replay.py": "elements of the user",
    "worker/tasks/output.py::_put": "an element of the user",
    "worker/tasks/output.py::add": "an element of the user",
    "worker/tasks/output.py::take": "an element of the user",
    "worker/tasks/stride.py::is_over": "an element of the user",
}


def is_untyped(annotation: ast.expr) -> bool:
    """Return True if an annotation admits any object, a sequence of any objects, a
    function that takes any object, or a table by class.
    """
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return is_untyped(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp):
        return is_untyped(annotation.left) or is_untyped(annotation.right)
    if not isinstance(annotation, ast.Subscript):
        return ast.unparse(annotation) in {"object", "Any"}
    whole, inside = ast.unparse(annotation.value), annotation.slice
    parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    if whole in {"list", "Sequence", "Iterable", "Iterator", "Collection"}:
        return ast.unparse(parts[0]) == "object"
    if whole == "Callable":
        return isinstance(parts[0], ast.List) and any(map(is_untyped, parts[0].elts))
    if whole in {"dict", "Mapping"}:
        return ast.unparse(parts[0]).split("[")[0] == "type"
    return any(map(is_untyped, parts))


def untyped_doors(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the functions with an untyped parameter or result, without the methods that
    Python names, and the names and bases of tables by class.
    """
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and not re.fullmatch(r"__(?!init)\w+__", node.name):
            given = [one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg)]
            if any(is_untyped(one) for one in (*given, node.returns) if one is not None):
                yield node.name, node
        elif isinstance(node, ast.AnnAssign) and is_table(node.annotation):
            yield ast.unparse(node.target), node
        elif isinstance(node, ast.ClassDef) and any(map(is_table, node.bases)):
            yield node.name, node


def is_table(annotation: ast.expr) -> bool:
    """Return True for a dict by class."""
    return bool(re.match(r"dict\[type\b", ast.unparse(annotation)))


def test_doors_are_typed() -> None:
    """No function of a decider or a shell takes or returns just any object, and none
    has its own table of handlers, except for ``UNTYPED_DOORS``, which are all in use.
    """
    roles = {ROOT / "zmqdata" / role for role in ("core", "client", "dispatcher", "worker")}
    used, untyped = set(), []
    for path in (path for path in PACKAGE if roles & {*path.parents}):
        module = path.relative_to(ROOT / "zmqdata").as_posix()
        for name, node in untyped_doors(tree_of(path)):
            keys = {module, f"{module}::{name}"} & UNTYPED_DOORS.keys()
            used |= keys
            if not keys:
                untyped.append(f"{place(path, node)} {name}")
    assert untyped == []
    assert used == UNTYPED_DOORS.keys()


@pytest.mark.parametrize(
    ("annotation", "is_found"),
    [
        ("object", True),
        ("'Any'", True),
        ("Any | None", True),
        ("list[object]", True),
        ("Sequence[object]", True),
        ("Callable[[object], None]", True),
        ("Callable[[int, Any], int] | None", True),
        ("dict[type[Any], int]", True),
        ("tuple[Any, int]", True),
        ("list[Any]", False),
        ("dict[str, Any]", False),
        ("Callable[[int], object]", False),
        ("Iterator[int]", False),
    ],
)
def test_untyped_annotations(annotation: str, is_found: bool) -> None:
    """Annotations that any event, command or message satisfies are found; elements of
    users and results that are not used are allowed.
    """
    assert is_untyped(ast.parse(annotation, mode="eval").body) is is_found


def test_untyped_functions() -> None:
    """Each parameter counts, however it is given, and so does the result."""
    found = untyped_doors(
        ast.parse(
            "def a(x: int, *y: object) -> int: ...\n"
            "def b(*, z: Any) -> int: ...\n"
            "def c() -> Any: ...\n"
            "def d(x: int) -> None: ...\n"
            "def __eq__(self, other: object) -> bool: ...\n"
            "class E(dict[type[int], str]): ...\n"
            "f: dict[type, int] = {}\n"
        )
    )
    assert {name for name, _ in found} == {"a", "b", "c", "E", "f"}


def test_the_version_is_stated_once() -> None:
    """The version stands only in pyproject.toml, and the changelog has its entry."""
    found = re.search(r'^version = "(\d+\.\d+\.\d+)"', read("pyproject.toml"), re.MULTILINE)
    assert found, "pyproject.toml states no version"
    quoted = re.compile(rf"""["']{re.escape(found[1])}["']""")
    modules = [*PACKAGE, ROOT / "setup.py"]
    assert [
        place(path) for path in modules if quoted.search(path.read_text(encoding="utf-8"))
    ] == []
    assert f"## {found[1]}" in read("CHANGELOG.md")


def test_the_design_names_every_module() -> None:
    """The table of layers lists each module and package, and nothing else."""
    table = read("docs/design.md").split("## Layers")[1].split("\n\n`testing`")[0]
    named = {name.partition(".")[0] for name in re.findall(r"`(\w[\w.]*)`", table)} - {"make"}
    found = {path.relative_to(ROOT / "zmqdata").parts[0].removesuffix(".py") for path in PACKAGE}
    assert named == found - {"testing"}


def shell_of(path: Path) -> Iterator[str]:
    """Yield the lines of a script, or a page's lines of code and spans of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        yield from text.splitlines()
        return
    for number, part in enumerate(re.split(r"(?m)^\s*```.*$", text)):
        if number % 2:
            yield from part.splitlines()
        else:
            yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", part))


def made_targets(line: str) -> set[str]:
    """Return the targets of all make commands in a line of shell."""
    plain = re.sub(r"\"[^\"]*\"|'[^']*'|\d?[<>]+&?\s*[^\s;&|]+", "", line)
    begins = r"(?:^|[;&|!({]|\b(?:if|then|do|sudo|nice|time)\b|\$)\s*(?:\w+=\S*\s+)*"
    asked = re.findall(rf"{begins}make\s+([^;&|#(){{}}]*)", plain)
    words = " ".join(asked).split()
    return {word for word in words if "=" not in word and not word.startswith("-")}


@pytest.mark.parametrize(
    ("line", "targets"),
    [
        ("make test lint types layers docs", {"test", "lint", "types", "layers", "docs"}),
        ('make test ARGS="--full -k lint" lock  # make nothing', {"test", "lock"}),
        ("make build >/dev/null && make -j2 docs | tee log", {"build", "docs"}),
        ("if ! make locked >log 2>&1; then", {"locked"}),
        ("$ sudo PYTHON=python3.12 make audit", {"audit"}),
        ("# to make a release", set()),
        ("make_iterator(node, 1)", set()),
    ],
)
def test_targets_are_read_from_a_line(line: str, targets: set[str]) -> None:
    """All targets of a line of shell are found, but no options, values or comments."""
    assert made_targets(line) == targets


def test_the_documented_commands_exist() -> None:
    """Each target of a ``make a b`` in the pages and in CI is in the Makefile. README
    begins with demo and test.
    """
    targets = set(re.findall(r"^([a-z-]+):(?!=)", read("Makefile"), re.MULTILINE))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
    commands = {path: set[str]() for path in (*pages, ROOT / ".ci" / "run")}
    for path, asked in commands.items():
        asked.update(*map(made_targets, shell_of(path)))
    assert {
        place(path): asked - targets for path, asked in commands.items() if asked - targets
    } == {}
    assert {"locked", "test-pythons", "demo"} <= commands[ROOT / ".ci" / "run"]
    assert {"test", "lint", "types", "layers", "docs"} <= commands[ROOT / "CONTRIBUTING.md"]
    opening = [line.split("#")[0].strip() for line in read("README.md").splitlines()[:12]]
    assert [line for line in opening if line.startswith("make ")] == ["make demo", "make test"]


def ids_in(text: str) -> set[str]:
    """Return the modules and ids of tests in a page, as `folder/test_x.py::test_y`."""
    return set(re.findall(r"`([\w/]*test_\w+\.py(?:::test_\w+)?)", text))


def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    """Return the test functions of a module by their ids."""
    module = path.relative_to(ROOT / "tests").as_posix()
    return {
        f"{module}::{node.name}": node
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def marks_full(path: Path, *marked: ast.AST) -> bool:
    """Return True if code marks tests ``full``, or uses a constant of its module that
    does.
    """
    body = tree_of(path).body
    sources = [node for node in body if isinstance(node, ast.ImportFrom)]
    markers = {
        alias.name for node in sources if node.module == "tests.full" for alias in node.names
    }
    constants = {
        ast.unparse(target): node.value
        for node in body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    for node in (part for one in marked for part in ast.walk(one)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.full":
            return True
        if isinstance(node, ast.Name) and node.id in markers:
            return True
        if isinstance(node, ast.Name) and marks_full(path, *filter(None, [constants.get(node.id)])):
            return True
    return False


def full_tests() -> set[str]:
    """Return the ids of the tests with cases that are marked ``full``. Acceptance tests
    are without the mark that their ``conftest`` gives to cases on processes.
    """
    return {
        name
        for path in TESTS
        if path.name.startswith("test_")
        for name, node in functions_of(path).items()
        if marks_full(path, *node.decorator_list, ast.Name("pytestmark"))
    }


def test_the_list_of_full_tests_names_tests_that_exist() -> None:
    """``tests/FULL.md`` lists exactly the tests that are marked ``full``, and each test
    that it names exists.
    """
    found = {name for path in TESTS for name in functions_of(path)}
    found |= {path.relative_to(ROOT / "tests").as_posix() for path in TESTS}
    page = read("tests", "FULL.md")
    assert ids_in(page) - found == set()
    tables = re.findall(r"^\| Left to .*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = [row.split("|")[1] for table in tables for row in table.splitlines()]
    assert set().union(*map(ids_in, rows)) == full_tests()


def prose_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a page outside of code, tables and headings."""
    is_code = False
    for line in path.read_text(encoding="utf-8").splitlines():
        is_code ^= line.lstrip().startswith("```")
        if not is_code and "|" not in line and not line.startswith(("#", "    ")):
            yield line


def test_pages_are_short_and_narrow() -> None:
    """The README has at most 150 lines and the changelog of a release fewer than 60;
    lines of prose end at column 88.
    """
    assert len(read("README.md").splitlines()) <= 150
    releases = re.split(r"(?m)^## ", read("CHANGELOG.md"))
    assert max(len(one.splitlines()) for one in releases) < 60
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    generated = {ROOT / "docs" / "benchmarks.md"}
    found = [
        f"{place(path)} {line[:60]}"
        for path in pages
        if path not in generated
        for line in prose_lines(path)
        if len(line) > 88 and "](" not in line
    ]
    assert found == []


def test_the_readme_names_the_limits_that_it_has() -> None:
    """README says that authentication is missing while the package has no keys."""
    assert (ROOT / "zmqdata" / "transport" / "keys.py").exists() or "no authentication" in read(
        "README.md"
    )
