"""Private names of PyTorch are taken in one file alone, and this PyTorch has each of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torch_private.names import GLOBAL_HOOKS, NAMES, OF_CUDA, OF_TENSORS, PATHS, PUBLIC, SOURCE, YOUNG
from tests.torches import needs_torch

pytestmark = needs_torch(4, "that has nearly all of them")
PRIVATE = re.compile(r"_[a-zA-Z]\w*")


def private_names(file: Path) -> Iterator[str]:
    """Private names that a file takes from PyTorch or finds on something that is not its own."""
    tree = ast.parse(file.read_text())
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    own |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    own |= {n.target.id for n in ast.walk(tree) if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            yield from filter(PRIVATE.fullmatch, [*str(node.module).split("."), *(alias.name for alias in node.names)])
        elif isinstance(node, ast.Import):
            yield from (p for a in node.names if a.name.startswith("torch.") for p in a.name.split(".") if p[0] == "_")
        elif isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr) and node.attr not in own:
            yield node.attr


def test_no_other_file_takes_a_private_name_from_pytorch() -> None:
    others = {"_replace", "_exit", "_grid_constructor_from_step_size"}  # of named tuples, of os and of torchdiffeq
    found = {
        f"{file.relative_to(SOURCE.parent)}: {name}"
        for file in SOURCE.parent.rglob("*.py")
        if file != SOURCE
        for name in private_names(file)
        if name not in others
    }
    assert not found


def test_these_are_the_private_names_of_that_file() -> None:
    named = re.findall(r'_find\(\s*"([\w.]+)"', SOURCE.read_text())
    named = [*named, "torch.autograd.forward_ad._current_level", "torch.get_autocast_dtype"]
    others = {"torch._utils.is_compiling", "torch._dynamo.exc.TorchDynamoException"}
    assert {*named} == {*NAMES, *YOUNG, *GLOBAL_HOOKS, *OF_CUDA, *others}
    of_modules = {"_forward_hooks", "_forward_pre_hooks", "_backward_pre_hooks"}
    assert set(private_names(SOURCE)) == {"_current_level", *OF_TENSORS, *of_modules}


@pytest.mark.parametrize("path", [*PATHS, *PUBLIC, *GLOBAL_HOOKS])
def test_this_pytorch_has_each_of_them(path: str) -> None:
    with pytest.MonkeyPatch.context() as hidden:
        hidden.delattr(path)  # which refuses what is not there
