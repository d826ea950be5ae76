"""A hook of MkDocs: ``::: module`` becomes the module's public names with their first sentences."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

_MARK = re.compile(r"^::: (\S+)$", flags=re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace every mark on a page."""
    return _MARK.sub(lambda found: listing(found[1]), markdown)


def listing(name: str) -> str:
    """Return a module's contract, and a line for each of its public names."""
    module = import_module(name)
    lines = [_entry(member, getattr(module, member)) for member in sorted(module.__all__)]
    return "\n".join((f"{_contract(module)}\n", *lines))


def _entry(name: str, value: Any) -> str:  # noqa: ANN401  (any public name)
    if inspect.isclass(value):
        kind, methods = "class ", _methods(value)
    elif inspect.isroutine(value):
        kind, methods = "", []
    else:
        return f"- `{name}`"
    head = f"- `{kind}{name}{_signature(value)}`"
    return "\n".join((f"{head}  \n  {_contract(value)}", *(f"    {line}" for line in methods)))


def _methods(value: type) -> list[str]:
    found = []
    for name, member in vars(value).items():
        inner = getattr(member, "__func__", member)
        if name.startswith("_") or not (inspect.isfunction(inner) or isinstance(inner, property)):
            continue
        shown = "" if isinstance(inner, property) else _signature(inner)
        found.append(f"- `.{name}{shown}`  \n      {_contract(inner)}")
    return found


def _signature(value: Any) -> str:  # noqa: ANN401  (any callable)
    try:
        signature = inspect.signature(value)
    except ValueError:
        return ""
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name not in {"self", "cls"}
    ]
    text = str(inspect.Signature(plain))
    return re.sub(r"<(?:[\w.]+\.)?\w+: ([^>]+)>", r"\1", text)


def _contract(value: Any) -> str:  # noqa: ANN401  (anything with a docstring)
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
