"""The rules of docstrings: a first line that is a sentence, and `Args:` where there are many parameters."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import Source

MANY = 3
"""Parameters of a public function from which on `Args:` says what each is."""

NO_SUBJECTS = ("Of ", "How ", "Whether ", "What ", "That ")
"""Words that begin a clause without the sentence that it belongs to: its own verb would pass for the sentence's."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text().split())
"""Verbs in their base form, as an imperative has it."""

_AUXILIARIES = frozenset(Path(__file__).with_name("auxiliaries.txt").read_text().split())
_NOUNS = frozenset(Path(__file__).with_name("nouns.txt").read_text().split())
"""Verbs that are as often nouns: they make no line a sentence, but where they begin it."""


def _third_person(verb: str) -> set[str]:
    if re.search(r"(s|x|z|ch|sh|o)$", verb):
        return {verb + "es"}
    if re.search(r"[^aeiou]y$", verb):
        return {verb[:-1] + "ies"}
    return {verb + "s"}


_FINITE = _AUXILIARIES | {form for verb in VERBS - _NOUNS for form in (verb, *_third_person(verb))}
_FINITE |= {form for verb in VERBS & _NOUNS for form in _third_person(verb) if verb not in {"state", "part", "job"}}


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+(?:'[a-z]+)?", re.sub(r"`[^`]*`", "x", text).lower())


def first_sentence(docstring: str) -> str:
    """Return the text up to the first blank line, as one line."""
    return " ".join(docstring.split("\n\n")[0].split())


def is_imperative(sentence: str) -> bool:
    """Return whether a sentence begins with a verb's base form."""
    words = _words(sentence)
    return bool(words) and words[0] in VERBS


def is_sentence(sentence: str) -> bool:
    """Return whether a text has a verb in a form that a subject may have, or begins as an imperative."""
    return is_imperative(sentence) or any(word in _FINITE for word in _words(sentence))


def complaints(source: Source) -> Iterator[str]:
    """Yield what is wrong with the docstrings of a source, each with its place."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and (text := ast.get_docstring(node)):
            line = 1 if isinstance(node, ast.Module) else node.lineno
            name = "module" if isinstance(node, ast.Module) else node.name
            for complaint in _of(node, text):
                yield f"{source.path}:{line} {name}: {complaint}: {first_sentence(text)[:80]!r}"


def _of(node: ast.Module | ast.ClassDef | Function, text: str) -> Iterator[str]:
    sentence = first_sentence(text)
    if not sentence.endswith((".", "!", "?", ":")):
        yield "the first line is no sentence with a full stop"
    if sentence.startswith(NO_SUBJECTS):
        yield f"the first line begins with {sentence.split()[0]!r}, a clause without its sentence"
    if isinstance(node, Function):
        if _is_property(node):
            return
        if not is_imperative(sentence):
            yield "the first line does not begin with an imperative verb (Return ..., Keep ...; or add it to verbs.txt)"
        many = len(_parameters(node)) >= MANY and not node.name.startswith("_") and not _is_command(node)
        if many and not _is_told(text):
            yield f"a public function of {MANY} parameters or more says in `Args:` what each is"
    elif not is_sentence(sentence):
        yield "the first line has no verb"


def _is_told(text: str) -> bool:
    return "Args:" in text or first_sentence(text).startswith("See ")


def _is_property(node: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_command(node: Function) -> bool:
    """Return whether people call a function as a command, whose help has its docstring and says each option itself."""
    named = (ast.unparse(each.annotation) for each in node.args.args if each.annotation is not None)
    decorators = (ast.unparse(decorator) for decorator in node.decorator_list)
    return any(".command(" in each or each == "grouped" for each in decorators) or any(
        "typer." in each for each in named
    )


def _parameters(node: Function) -> list[str]:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [each.arg for each in every if each.arg not in ("self", "cls")]
