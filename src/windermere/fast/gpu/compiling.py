"""CUDA C to machine code by NVRTC. Run as a script it needs nothing but Python: a process of its own compiles while its
parent solves, may end before it, and survives whatever a compiler does.

`python compiling.py` reads a JSON object from its input, the arguments of `compiled`, and writes the machine code.
Where there is none, it says why and ends with 1.
"""

import ctypes
import json
import sys
from typing import Any


class CompilerError(Exception):
    """Why there is no machine code."""


def compiled(
    library: str, companions: list[str], source: list[str], included: list[list[str]], options: list[str]
) -> bytes:
    """Machine code from a source and what it includes, each a name and a text, by this NVRTC.

    companions: what NVRTC asks for by name alone when it compiles; it finds what is loaded already.
    """
    for other in companions:
        ctypes.CDLL(other, mode=getattr(ctypes, "RTLD_GLOBAL", 0))
    compiler, program = ctypes.CDLL(library), ctypes.c_void_p()
    names, texts = (_strings([pair[k] for pair in included]) for k in (0, 1))
    name, text = (word.encode() for word in source)
    made = compiler.nvrtcCreateProgram(ctypes.byref(program), text, name, len(included), texts, names)
    if made or compiler.nvrtcCompileProgram(program, len(options), _strings(options)):
        raise CompilerError(_read(compiler, program, "ProgramLog").decode(errors="replace")[:2000])
    return _read(compiler, program, "CUBIN")


def _strings(words: list[str]) -> Any:
    return (ctypes.c_char_p * len(words))(*[word.encode() for word in words])


def _read(compiler: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(compiler, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    if getattr(compiler, f"nvrtcGet{what}")(program, room):
        raise CompilerError(f"NVRTC gives no {what}")
    return room.raw


def main() -> int:
    try:
        image = compiled(**json.load(sys.stdin))
    except (CompilerError, OSError, AttributeError) as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(image)
    return 0


if __name__ == "__main__":
    sys.exit(main())
